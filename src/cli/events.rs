//! `fencegate events`: through the gateway where one answers, else from what it has kept.

use super::admin::{Gateway, encode};
use super::{Failure, load, say};
use crate::admin::EventPage;
use crate::app::records;
use crate::event::{Event, Keep, Kind, Wanted};
use anyhow::{Context, anyhow};
use clap::Args;
use std::io::Write;
use std::path::Path;

/// How many are asked for at once.
const PAGE: usize = 1000;

#[derive(Debug, Args)]
pub(super) struct Asked {
    /// Those of this kind: stale, superseded, replayed, unverified, jump, guard-conflict, drain-timeout,
    /// unknown-outcome or store.
    #[arg(long)]
    kind: Option<String>,
    /// Those on this route.
    #[arg(long)]
    route: Option<String>,
    /// Those of resources whose names begin with this, such as `default:files/`.
    #[arg(long)]
    resource: Option<String>,
    /// Those of this holder.
    #[arg(long)]
    holder: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on with each that comes, until interrupted.
    #[arg(long)]
    follow: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(config: &Path, asked: &Asked) -> Result<(), Failure> {
    let settings = load(config)?.settings;
    let kind = asked.kind.as_ref().map(|word| {
        let all = Kind::ALL.map(Kind::word).join(", ");
        Kind::of(word).ok_or_else(|| anyhow!("{word:?} is no kind of event: there are {all}"))
    });
    let mut wanted = Wanted {
        before: None,
        kind: kind.transpose()?,
        route: asked.route.clone(),
        resource: asked.resource.clone(),
        holder: asked.holder.clone(),
    };
    let gateway = Gateway::find(settings.admin.listen)?;
    let keep = match &gateway {
        None if asked.follow => {
            return Err(anyhow!(
                "no gateway answers at {}: nothing can be followed",
                settings.admin.listen
            )
            .into());
        }
        None => Some(Keep::look(&records::place(&settings))?),
        Some(_) => None,
    };
    let (mut found, mut left) = (Vec::new(), asked.limit);
    while left > 0 {
        let limit = left.min(PAGE);
        let page = match (&gateway, &keep) {
            (Some(gateway), _) => page(gateway, &wanted, limit)?,
            (None, Some(keep)) => keep.list(&wanted, limit).map_err(|e| anyhow!(e))?,
            (None, None) => Vec::new(),
        };
        left -= page.len().min(left);
        wanted.before = page.last().map(|event| event.place);
        let more = page.len() == limit;
        found.extend(page);
        if !more {
            break;
        }
    }
    // As a log: the newest last.
    for event in found.iter().rev() {
        let _ = print(event, asked.json); // a reader that has left is no fault
    }
    let Some(gateway) = gateway.filter(|_| asked.follow) else {
        return Ok(());
    };
    wanted.before = None;
    let target = format!("/api/v1/events/stream?{}", query(&wanted));
    let (mut left, mut missed) = (false, false);
    gateway.lines(&target, |line| {
        missed |= line == "event: missed" || line == "event:missed";
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            return true;
        };
        if std::mem::take(&mut missed) {
            say(&format!(
                "fencegate: {data} events came too fast to be followed: fencegate events lists them"
            ));
            return true;
        }
        let Ok(event) = serde_json::from_str::<Event>(data) else {
            say("fencegate: an event cannot be read: is the gateway of another version?");
            return true;
        };
        left = print(&event, asked.json).is_err();
        !left
    })?;
    if left {
        return Ok(());
    }
    Err(anyhow!("the gateway has ended").into())
}

fn page(gateway: &Gateway, wanted: &Wanted, limit: usize) -> anyhow::Result<Vec<Event>> {
    let target = format!("/api/v1/events?limit={limit}&{}", query(wanted));
    let body = gateway.get(&target)?;
    let page: EventPage = serde_json::from_slice(&body)
        .with_context(|| format!("what answers at {} is no fencegate", gateway.address))?;
    Ok(page.events)
}

fn query(wanted: &Wanted) -> String {
    let pairs = [
        ("before", wanted.before.map(|id| id.to_string())),
        ("kind", wanted.kind.map(|kind| kind.word().to_owned())),
        ("route", wanted.route.clone()),
        ("resource", wanted.resource.clone()),
        ("holder", wanted.holder.clone()),
    ];
    let given = pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let given = given.map(|(name, value)| format!("{name}={}", encode(&value)));
    given.collect::<Vec<_>>().join("&")
}

/// A line to standard output, in which nothing moves a terminal's cursor.
fn print(event: &Event, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    if json {
        let text = serde_json::to_string(event)?;
        for letter in text.chars() {
            match letter {
                ' '..='~' => write!(out, "{letter}")?,
                _ => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        return writeln!(out);
    }
    let or_none = |text: &Option<String>| text.as_deref().unwrap_or("-").escape_debug().to_string();
    let holder = match &event.holder {
        Some(name) if !event.proved => format!("{name:?}"), // it says so itself
        name => or_none(name),
    };
    writeln!(
        out,
        "{}\t{}\t{}\t{}\ttoken {} fence {}\t{holder} at {}\tx{}",
        event.last,
        event.kind.word(),
        event.route.escape_debug(),
        or_none(&event.resource),
        or_none(&event.token),
        or_none(&event.fence),
        event.client,
        event.count
    )
}
