//! A write from pass to outcome. Whatever drives this owns the pass.

use super::Outgoing;
use super::attend::{Answered, Work};
use super::download::Download;
use super::exchange;
use super::failure::Failed;
use super::grpc;
use super::guarded::{self, Guarded};
use super::pool::Pool;
use super::relay::{Relay, Step};
use super::tunnel::{Held, Tunnel};
use super::upload::Progress;
use crate::admit::{Outcome, Pass};
use crate::clock;
use crate::config::settings::SettledAt;
use crate::guard::Told;
use http::StatusCode;
use http_body::Body;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Runs a write until it has its response, and ends its pass, and its turn at its object where it has one, with
/// what became of it: at once, or in what is left to do. `calls`: it is a gRPC call.
pub(super) async fn run(
    pool: Rc<Pool>,
    pass: Pass,
    mut guarded: Option<Guarded>,
    request: Box<Outgoing>,
    settled_at: SettledAt,
    calls: bool,
) -> Answered {
    let mut progress = Rc::clone(request.progress());
    let sent = match &mut guarded {
        None => exchange::run(&pool, Some(&pass), request, &progress)
            .await
            .map(|(response, link)| (response, link, Told::Passes)),
        // Rare: kept out of the others' future.
        Some(guarded) => {
            Box::pin(guarded::send(&pool, &pass, guarded, request, &mut progress)).await
        }
    };
    let (response, link, told) = match sent {
        Ok(answer) => answer,
        Err(stopped) => {
            pass.finish(match stopped.closed {
                Some(since) => Outcome::Unknown {
                    whole: progress.is_whole(),
                    since,
                },
                None => Outcome::Unsent,
            });
            let failed = Failed {
                why: stopped.why,
                sent: stopped.closed.is_some(),
            };
            return (Err(failed), None);
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let tunnel = Tunnel::new(link, Held::Pass(pass));
        return (Ok(response.map(|_| Download::switched(tunnel))), None);
    }
    if told == Told::Refused {
        progress.stop();
        pass.finish(Outcome::Unsent);
        let whole = progress.is_whole();
        return (
            Ok(response.map(|body| Download::direct(body, link, whole, None))),
            None,
        );
    }
    let promised = calls && grpc::promises_status(response.headers());
    let status = !pool.upstream.unsettled_status.contains(&response.status());
    let is_over = response.body().is_end_stream();
    if progress.is_whole() && (settled_at == SettledAt::ResponseHead || is_over) {
        let says = || grpc::says_something(response.headers()).unwrap_or(!is_over);
        pass.finish(answered(status && (!promised || says())));
        return (
            Ok(response.map(|body| Download::direct(body, link, true, None))),
            None,
        );
    }
    let success = response.status().is_success();
    let (parts, receiver) = mpsc::channel(1);
    let (head, body) = response.into_parts();
    let piped = Download::piped(receiver, body.size_hint());
    let turn = guarded.map(|guarded| guarded.turn);
    let relay = Relay::new(body, link, parts, Rc::clone(&progress), promised, turn);
    let rest: Work = if progress.is_whole() {
        let patience = pool.upstream.response_body_timeout;
        Box::pin(to_the_end(pass, relay, status, patience))
    } else if success {
        Box::pin(alongside(pass, relay, progress, settled_at, status))
    } else {
        progress.stop(); // at once: what is left to do runs later
        Box::pin(turned_down(pass, relay, progress))
    };
    (Ok(http::Response::from_parts(head, piped)), Some(rest))
}

fn answered(says_something: bool) -> Outcome {
    if says_something {
        Outcome::Answered
    } else {
        Outcome::Unknown {
            whole: true,
            since: clock::now(),
        }
    }
}

/// Turned down before the request was whole (413, 401), and stopped by now: nothing more of it is sent,
/// the answer is passed on, and the connection closed. A cut closes it at once.
async fn turned_down(pass: Pass, mut relay: Relay, progress: Rc<Progress>) {
    while relay.step(Some(&pass)).await == Step::More {}
    let since = relay.close().await;
    pass.finish(Outcome::Unknown {
        whole: progress.is_whole(),
        since,
    });
}

/// The upstream answers well while it still reads: both go on side by side. The write is answered once
/// it is whole; if the response ends or a cut comes before that, the connection is closed.
async fn alongside(
    pass: Pass,
    mut relay: Relay,
    progress: Rc<Progress>,
    settled_at: SettledAt,
    status: bool,
) {
    loop {
        let step = relay.step(Some(&pass)).await;
        match step {
            Step::More if !progress.is_whole() => {}
            Step::More | Step::Cut if progress.is_whole() => {
                if settled_at == SettledAt::ResponseHead {
                    relay.end_turn();
                    pass.finish(answered(status));
                    return relay.finish().await;
                }
                if step == Step::Cut {
                    let idle = relay.limits().body_idle;
                    relay.detach(clock::now().after(idle));
                }
            }
            Step::End if progress.is_whole() => {
                let says = relay.says_something();
                relay.give_back();
                return pass.finish(answered(status && says));
            }
            Step::More | Step::Cut | Step::End | Step::Broken => {
                let since = relay.close().await;
                return pass.finish(Outcome::Unknown {
                    whole: progress.is_whole(),
                    since,
                });
            }
        }
    }
}

/// The write counts as answered at the end of its response. Superseded, it is detached from its
/// client, and the rest of the response is read and dropped for a while before it is cut.
async fn to_the_end(pass: Pass, mut relay: Relay, status: bool, patience: Duration) {
    loop {
        match relay.step(Some(&pass)).await {
            Step::More => {}
            Step::Cut => relay.detach(clock::now().after(patience)),
            Step::End => {
                let says = relay.says_something();
                relay.give_back();
                return pass.finish(answered(status && says));
            }
            Step::Broken => {
                let since = relay.close().await;
                return pass.finish(Outcome::Unknown { whole: true, since });
            }
        }
    }
}
