//! The commands, one file each.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or configuration.

/// Writes a line to standard output. A reader that has left (`| head`) is no fault.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod admin;
mod check;
mod demo;
mod events;
mod fences;
mod init;
mod rebuild;
mod serve;

use crate::config::{self, Loaded};
use clap::{Parser, Subcommand, ValueEnum};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Keeps zombies from writing: a reverse proxy that checks fencing tokens for services that cannot.
#[derive(Debug, Parser)]
#[command(name = "fencegate", version)]
pub struct Cli {
    /// The configuration file.
    #[arg(
        long,
        global = true,
        env = "FENCEGATE_CONFIG",
        default_value = "config/fencegate.toml"
    )]
    config: PathBuf,
    /// How log lines are written to standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the store. On a store that exists it changes nothing.
    Init,
    /// Run the gateway.
    Serve,
    /// Check the configuration, or explain what becomes of a request.
    Check {
        /// A request such as "PUT /files/a"; where routes have a host, with a whole URL in place of the path.
        #[arg(long, value_name = "REQUEST")]
        explain: Option<String>,
        /// Ask the upstreams of guarded routes which conditions they honour: their probes write and delete.
        #[arg(long)]
        probe: bool,
    },
    /// Look at fences: through the gateway where one runs, else in the store itself.
    #[command(subcommand)]
    Fences(fences::Command),
    /// Show what was refused or went wrong, by whom and since when; repeats are one line with a count.
    Events(events::Asked),
    /// Raise fences to what the stamps in an object store say, after the fence store was lost.
    Rebuild {
        /// Where to look: `s3://BUCKET/PREFIX`.
        #[arg(long, value_name = "PLACE")]
        from: String,
        /// The upstream, where there are several object stores.
        #[arg(long, value_name = "NAME")]
        upstream: Option<String>,
    },
    /// Play the scene of the lock literature, without and with the gateway.
    Demo,
}

/// Why a command did not do what it was asked for.
enum Failure {
    /// Something failed.
    Failed(anyhow::Error),
    /// The configuration or the usage is wrong; it has been said.
    Config(String),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Cli {
    /// Runs the command. Errors go to standard error.
    #[must_use]
    pub fn run(self) -> ExitCode {
        log_to_stderr(self.log_format);
        let done = match self.command {
            Command::Init => init::run(&self.config),
            Command::Serve => serve::run(&self.config),
            Command::Check { explain, probe } => {
                check::run(&self.config, explain.as_deref(), probe)
            }
            Command::Fences(command) => fences::run(&self.config, &command),
            Command::Events(asked) => events::run(&self.config, &asked),
            Command::Rebuild { from, upstream } => rebuild::run(&self.config, &from, upstream),
            Command::Demo => demo::run(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Failed(error)) => {
                say(&format!("fencegate: {error:#}"));
                ExitCode::from(1)
            }
            Err(Failure::Config(text)) => {
                say(&text);
                ExitCode::from(2)
            }
        }
    }
}

/// Reads the configuration; its warnings go to the log.
fn load(path: &Path) -> Result<Loaded, Failure> {
    load_text(path).map(|(loaded, _)| loaded)
}

/// The same, with the text.
fn load_text(path: &Path) -> Result<(Loaded, String), Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let what = format!("fencegate: cannot read {}: {error}", path.display());
        Failure::Config(format!(
            "{what}; name the file with --config or FENCEGATE_CONFIG"
        ))
    })?;
    let loaded = config::load(&text).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|note| in_file(path, note)).collect();
        Failure::Config(lines.join("\n"))
    })?;
    Ok((loaded, text))
}

fn in_file(path: &Path, note: &config::Note) -> String {
    format!("{}:{note}", path.display())
}

/// A line to standard error. Where nobody reads it any more, the exit code says it alone.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn log_to_stderr(format: LogFormat) {
    let filter =
        EnvFilter::try_from_env("FENCEGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(
            std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        )
        // A log that cannot be written must not stop the gateway: to report it would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // Fails only where a log is set up already, as in tests.
    let _ = match format {
        LogFormat::Json => log.json().try_init(),
        LogFormat::Text => log.try_init(),
    };
}
