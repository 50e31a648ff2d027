//! How many client connections there may be: in all, and of one client.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Room for client connections, over all listeners and threads.
pub struct Room {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of_one: HashMap<IpAddr, usize>,
}

/// A connection's place, given back when it is dropped.
pub struct Seat {
    room: Arc<Room>,
    client: IpAddr,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There are as many connections as there may be.
    All,
    /// This client has as many as one client may have.
    Client,
}

impl Room {
    /// `most`: in all; `most_of_one`: from one address.
    #[must_use]
    pub fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            taken: Mutex::default(),
        })
    }

    /// How many places are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.lock().all
    }

    /// Takes a place for a connection from this address.
    ///
    /// # Errors
    /// [`Full`]
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Full> {
        let client = client_of(address);
        let mut taken = self.taken.lock();
        if taken.all >= self.most {
            return Err(Full::All);
        }
        let of_one = taken.of_one.get(&client).copied().unwrap_or_default();
        if of_one >= self.most_of_one {
            return Err(Full::Client);
        }
        taken.all += 1;
        taken.of_one.insert(client, of_one + 1);
        Ok(Seat {
            room: Arc::clone(self),
            client,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        match taken.of_one.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.of_one.remove(&self.client);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or the network that an IPv6 host has for itself (/64).
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let room = Room::new(3, 2);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = room.enter(a).unwrap();
        let _second = room.enter(a).unwrap();
        assert_eq!(room.enter(a).err(), Some(Full::Client));
        let third = room.enter(b).unwrap();
        assert_eq!(room.enter(b).err(), Some(Full::All));
        drop(third);
        drop(first);
        assert!(room.enter(a).is_ok() && room.enter(b).is_ok());
    }

    #[test]
    fn a_host_of_many_addresses_is_one_client() {
        let one = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(one("2001:db8::1"), one("2001:db8::ffff:1"));
        assert_ne!(one("2001:db8::1"), one("2001:db8:0:1::1"));
        assert_eq!(one("::ffff:192.0.2.1"), one("192.0.2.1"));
    }
}
