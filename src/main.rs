//! The `fencegate` program: reads the command line and runs the command.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    fencegate::cli::Cli::parse().run()
}
