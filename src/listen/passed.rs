//! Listening sockets that the service manager opened and passed on (systemd's socket activation,
//! `sd_listen_fds(3)`).
//!
//! They outlive the process: who connects while it is restarted waits in their queue.

use listenfd::ListenFd;
use socket2::SockRef;
use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Why sockets that were passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PassedError {
    /// It is no TCP socket, or cannot be asked what it is.
    #[error("{which} cannot be used: {source}")]
    Unusable {
        /// Which one.
        which: String,
        /// What is wrong with it.
        source: io::Error,
    },
    /// It is a connection, or does not listen yet.
    #[error("{which} does not listen: the socket unit needs ListenStream=, and Accept=no")]
    Deaf {
        /// Which one.
        which: String,
    },
    /// It is for an address that the configuration does not name.
    #[error(
        "{which} listens on {address}, which is neither in server.listen nor admin.listen: name it there, or take it out of the socket unit"
    )]
    Unwanted {
        /// Which one.
        which: String,
        /// Where it listens.
        address: SocketAddr,
    },
    /// There is another one for its address.
    #[error("{which} listens on {address} as another one does: one is enough for all threads")]
    Twice {
        /// Which one.
        which: String,
        /// Where it listens.
        address: SocketAddr,
    },
}

/// Listening sockets that were passed.
#[derive(Default)]
pub struct Passed(Vec<Socket>);

struct Socket {
    which: String,
    address: SocketAddr,
    listener: TcpListener,
}

impl Passed {
    /// Takes those that were passed to this process; without any it is empty. To be called once, before
    /// there is any other thread: it removes the variables that name them.
    ///
    /// # Errors
    /// [`PassedError`] for the first that is no listening TCP socket.
    pub fn take() -> Result<Self, PassedError> {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let which = which(index, names.next());
            let taken = passed.take_tcp_listener(index);
            let unusable = |source| PassedError::Unusable {
                which: which.clone(),
                source,
            };
            let Some(listener) = taken.map_err(unusable)? else {
                continue; // it is there: nobody else has taken it
            };
            if !SockRef::from(&listener).is_listener().map_err(unusable)? {
                return Err(PassedError::Deaf { which });
            }
            sockets.push(Socket {
                address: listener.local_addr().map_err(unusable)?,
                which,
                listener,
            });
        }
        Ok(Self(sockets))
    }

    /// Checks that each has an address that is listened on.
    ///
    /// # Errors
    /// [`PassedError`] for the first that has none of its own.
    pub fn fit(self, addresses: &[SocketAddr]) -> Result<Self, PassedError> {
        for (index, socket) in self.0.iter().enumerate() {
            let (which, address) = (socket.which.clone(), socket.address);
            if !addresses.contains(&address) {
                return Err(PassedError::Unwanted { which, address });
            }
            if self.0[..index].iter().any(|other| other.address == address) {
                return Err(PassedError::Twice { which, address });
            }
        }
        Ok(self)
    }

    /// Takes the one that listens on that address.
    pub fn at(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.0.iter().position(|s| s.address == address)?;
        Some(self.0.swap_remove(index).listener)
    }
}

fn which(index: usize, name: Option<&str>) -> String {
    let number = index + 1;
    match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("socket {number} that was passed ({name})"),
        None => format!("socket {number} that was passed"),
    }
}
