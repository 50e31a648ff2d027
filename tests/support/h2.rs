//! An HTTP/2 client for tests: a connection on a thread of its own, whose streams a test starts, feeds,
//! awaits and resets one by one.

use super::Response;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder as Runtime, Handle};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct H2 {
    handle: Handle,
    sender: SendRequest<Pipe>,
    authority: String,
    scheme: &'static str,
    ended: Receiver<Result<(), String>>,
}

/// A request under way. Dropped, it is left alone.
pub struct Stream {
    answer: Receiver<Result<(Response, HeaderMap), String>>,
    abort: AbortHandle,
    body: Option<mpsc::Sender<Frame<Bytes>>>,
    handle: Handle,
}

/// A body that is fed by a test.
pub struct Pipe(mpsc::Receiver<Frame<Bytes>>, Option<u64>);

impl Body for Pipe {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.1 == Some(0)
    }
}

impl H2 {
    /// Connects without TLS, with HTTP/2 from the first byte.
    pub fn connect(port: u16) -> Self {
        Self::open(port, None).unwrap()
    }

    /// Connects with TLS to `localhost`.
    pub fn over_tls(port: u16, config: Arc<rustls::ClientConfig>) -> Result<Self, String> {
        Self::open(port, Some(config))
    }

    fn open(port: u16, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Self, String> {
        let runtime = Runtime::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (tell, ended) = sync_channel(1);
        let sender = wait(&handle, async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await;
            let stream = stream.map_err(|e| e.to_string())?;
            match tls {
                None => shake_hands(stream, tell).await,
                Some(config) => {
                    let name = ServerName::try_from("localhost").unwrap();
                    let stream = TlsConnector::from(config).connect(name, stream).await;
                    shake_hands(stream.map_err(|e| e.to_string())?, tell).await
                }
            }
        })?;
        Ok(Self {
            handle,
            sender,
            authority: format!("localhost:{port}"),
            scheme,
            ended,
        })
    }

    /// Starts a request whose body a test feeds.
    pub fn start(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Stream {
        self.send(method, path, headers, None)
    }

    /// Sends a request with that body and reads the answer.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static [u8],
    ) -> Response {
        let mut stream = self.send(method, path, headers, Some(body.len() as u64));
        if !body.is_empty() {
            stream.feed(body);
        }
        stream.end();
        stream.answer()
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: Option<u64>,
    ) -> Stream {
        let uri = format!("{}://{}{path}", self.scheme, self.authority);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (body, receiver) = mpsc::channel(8);
        let request = request.body(Pipe(receiver, length)).unwrap();
        let (tell, answer) = sync_channel(1);
        let mut sender = self.sender.clone();
        let work = self.handle.spawn(async move {
            let answered = match sender.send_request(request).await {
                Ok(response) => read(response).await,
                Err(error) => Err(format!("{error:?}")),
            };
            let _ = tell.send(answered);
        });
        Stream {
            answer,
            abort: work.abort_handle(),
            body: Some(body),
            handle: self.handle.clone(),
        }
    }

    /// Waits for the connection's end, and says how it ended.
    #[track_caller]
    pub fn ended(&self) -> Result<(), String> {
        self.ended.recv_timeout(PATIENCE).unwrap()
    }
}

impl Stream {
    /// Sends a part of the body. False where the stream takes no more.
    pub fn feed(&mut self, part: &'static [u8]) -> bool {
        self.frame(Frame::data(Bytes::from_static(part)))
    }

    /// Whether it takes no more of its body, although that was not ended.
    pub fn is_over(&self) -> bool {
        self.body.as_ref().is_some_and(mpsc::Sender::is_closed)
    }

    /// Ends the body with trailers.
    pub fn trailers(&mut self, trailers: HeaderMap) {
        self.frame(Frame::trailers(trailers));
        self.end();
    }

    /// Ends the body.
    pub fn end(&mut self) {
        self.body = None;
    }

    /// Resets the stream.
    pub fn reset(self) {
        self.abort.abort();
    }

    /// The answer, or why there is none.
    pub fn result(&self) -> Result<(Response, HeaderMap), String> {
        self.answer.recv_timeout(PATIENCE).unwrap()
    }

    /// The answer.
    #[track_caller]
    pub fn answer(&self) -> Response {
        self.result().unwrap().0
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> bool {
        let body = self.body.clone().unwrap();
        let sending = async move { body.send(frame).await.is_ok() };
        wait(&self.handle, sending)
    }
}

async fn shake_hands<S>(
    stream: S,
    tell: SyncSender<Result<(), String>>,
) -> Result<SendRequest<Pipe>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let made = Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = made.map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        let ended = connection.await.map_err(|e| format!("{e:?}"));
        let _ = tell.send(ended);
    });
    Ok(sender)
}

async fn read(
    response: http::Response<hyper::body::Incoming>,
) -> Result<(Response, HeaderMap), String> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|e| format!("{e:?}"))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = head.headers.iter();
    let response = Response {
        status: head.status.as_u16(),
        headers: headers
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        body: body.to_bytes().to_vec(),
    };
    Ok((response, trailers))
}

/// Runs something on the connection's thread, and waits for it.
fn wait<T: Send + 'static>(handle: &Handle, work: impl Future<Output = T> + Send + 'static) -> T {
    let (tell, told) = sync_channel(1);
    handle.spawn(async move { tell.send(work.await) });
    told.recv_timeout(PATIENCE).unwrap()
}
