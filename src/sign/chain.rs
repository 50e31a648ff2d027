//! What the search for credentials may use of this machine: files, the environment, programs that a profile names,
//! and services that give credentials out.

use crate::config::UpstreamTls;
use crate::fetch::{Tls, fetch};
use crate::tls::client;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, OsEnv, Result,
};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::ServerName;
use std::process::{Command, Stdio};
use tokio::task::spawn_blocking;

pub(super) fn context() -> Context {
    Context::new()
        .with_file_read(Files)
        .with_http_send(Services)
        .with_env(OsEnv)
        .with_command_execute(Programs)
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        let path = path.to_owned();
        let read = spawn_blocking(move || std::fs::read(path)).await;
        let read = read.map_err(|e| Error::unexpected(e.to_string()))?;
        read.map_err(|e| {
            Error::config_invalid(format!("a file of the profile cannot be read: {e}"))
        })
    }
}

#[derive(Debug)]
struct Services;

impl HttpSend for Services {
    async fn http_send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let (authority, tls) = place(&request)?;
        let asked = fetch(&authority, tls.as_ref(), request).await;
        // Never with the request or the answer: they hold secrets.
        asked.map_err(|e| {
            let why = e
                .source()
                .map_or_else(|| e.to_string(), |why| format!("{e}: {why}"));
            Error::unexpected(format!("{authority} does not give credentials out: {why}"))
        })
    }
}

/// Where a request goes, and how.
fn place(request: &Request<Bytes>) -> Result<(Authority, Option<Tls>)> {
    let invalid =
        |what: &str| Error::request_invalid(format!("no service for credentials: {what}"));
    let uri = request.uri();
    let named = uri.authority().ok_or_else(|| invalid("it has no host"))?;
    let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
    let port = named.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let authority = format!("{}:{port}", named.host()).parse::<Authority>();
    let authority = authority.map_err(|e| invalid(&e.to_string()))?;
    if !encrypted {
        return Ok((authority, None));
    }
    let server_name = ServerName::try_from(named.host().to_owned());
    let server_name = server_name.map_err(|e| invalid(&e.to_string()))?;
    let files = UpstreamTls {
        ca: None,
        identity: None,
        server_name: server_name.clone(),
    };
    let tls = client::open(files, false).map_err(|e| invalid(&e.to_string()))?;
    Ok((authority, Some((tls.config(), server_name))))
}

#[derive(Debug)]
struct Programs;

/// A program that runs; killed when nobody waits for it any more.
struct Running(Option<Pid>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::KILL); // it may have ended in this moment
        }
    }
}

impl CommandExecute for Programs {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> Result<CommandOutput> {
        let failed = |e: std::io::Error| {
            Error::config_invalid(format!(
                "{program}, which the profile names, cannot run: {e}"
            ))
        };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(failed)?;
        let mut running = Running(Some(Pid::from_child(&child)));
        let ended = spawn_blocking(move || child.wait_with_output()).await;
        running.0 = None;
        let ended = ended.map_err(|e| Error::unexpected(e.to_string()))?;
        let output = ended.map_err(failed)?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}
