//! Binds an address once for each serving thread.
//!
//! With `SO_REUSEPORT` a second process on the same port would succeed silently and take half of the
//! connections. So the address is bound without it first, and a lock per address is held for as long
//! as the process lives. A listener that was passed to the process is shared by its threads instead: a
//! new connection wakes all of them, and one takes it.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{0} is in use by another process; stop it, or change `listen`")]
    InUse(SocketAddr),
    /// The system refuses it.
    #[error("cannot listen on {address}: {source}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// An address that this process holds, with one listener for each serving thread.
pub struct Bound {
    /// The address, with the port that was given where 0 was asked for.
    pub address: SocketAddr,
    /// The listeners, non-blocking.
    pub listeners: Vec<TcpListener>,
    _lock: UnixListener,
}

/// Binds an address for `count` threads, or takes the listener that was passed for it.
///
/// # Errors
/// [`BindError`] where another process holds the address, or the system refuses it.
pub fn bind(
    address: SocketAddr,
    count: usize,
    passed: Option<TcpListener>,
) -> Result<Bound, BindError> {
    let refused = |source| BindError::Refused { address, source };
    let taken = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        _ => refused(source),
    };
    if let Some(passed) = passed {
        return Ok(Bound {
            address,
            _lock: lock(address).map_err(taken)?,
            listeners: shared(&passed, count).map_err(refused)?,
        });
    }
    // It does not listen: whoever connected to it would be reset when it goes.
    let probe = socket(address, false).map_err(taken)?;
    let local = probe.local_addr().map_err(refused)?;
    let address = local.as_socket().unwrap_or(address);
    let lock = lock(address).map_err(taken)?;
    drop(probe);
    let listeners = (0..count)
        .map(|_| listener(address))
        .collect::<Result<_, _>>();
    Ok(Bound {
        address,
        listeners: listeners.map_err(taken)?,
        _lock: lock,
    })
}

fn shared(passed: &TcpListener, count: usize) -> io::Result<Vec<TcpListener>> {
    passed.set_nonblocking(true)?;
    (0..count).map(|_| passed.try_clone()).collect()
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// An abstract Unix socket: exclusive, in the same network namespace as the port, and gone with the
/// process however that ends.
fn lock(address: SocketAddr) -> io::Result<UnixListener> {
    let name = format!("fencegate listens on {address}");
    UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_bind_of_the_same_address_is_refused() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let first = bind(any, 2, None).unwrap();
        assert_eq!(first.listeners.len(), 2);
        let second = bind(first.address, 1, None);
        assert!(matches!(second, Err(BindError::InUse(_))));
        let address = first.address;
        drop(first);
        assert!(bind(address, 1, None).is_ok());
    }
}
