//! A network of its own for one worker, so that its node can vanish: a network namespace behind a
//! virtual cable. What is sent to a node that vanished goes nowhere and nobody answers; a proxy cannot
//! do that, because the kernel under it answers.
//!
//! The node reaches this machine's loopback under its usual address. It takes root and `ip`; where
//! these are not, there is no node.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

pub struct Node {
    name: String,
    /// The third byte of its addresses.
    number: u8,
}

/// Where the node's address is from.
pub const NETWORK: &str = "10.213.0.0/16";
/// Where a program on the node may listen: 127.0.0.1 is elsewhere.
pub const LISTEN: &str = "127.0.0.2:0";
const NOBODY: &str = "02:00:00:00:00:01";

impl Node {
    /// `None` where this may not be done.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        // Names and addresses are the whole machine's; the port of a listener is nobody else's.
        let taken = TcpListener::bind("127.0.0.1:0").ok()?;
        let unique = taken.local_addr().ok()?.port();
        let number = NEXT
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(unique as u8);
        let node = Self {
            name: format!("lk{unique}"),
            number,
        };
        ip(&["netns", "add", &node.name]).then_some(())?;
        let (name, inside, outside) = (&node.name, node.inside(), node.outside());
        let (here, there) = (
            format!("{}/30", node.gateway()),
            format!("{}/30", node.address()),
        );
        let made = ip(&[
            "link", "add", &outside, "type", "veth", "peer", "name", &inside,
        ]) && ip(&["link", "set", &inside, "netns", name])
            && ip(&["addr", "add", &here, "dev", &outside])
            && ip(&["link", "set", &outside, "up"])
            && ip(&["-n", name, "addr", "add", &there, "dev", &inside])
            && ip(&["-n", name, "link", "set", &inside, "up"])
            && ip(&["-n", name, "addr", "add", "127.0.0.2/32", "dev", "lo"])
            && ip(&["-n", name, "link", "set", "lo", "up"])
            // It was given this when it came up.
            && ip(&["-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo"])
            && routes_loopback(&[], &outside)
            && routes_loopback(&["ip", "netns", "exec", name], &inside)
            && ip(&[
                "-n",
                name,
                "route",
                "add",
                "127.0.0.1/32",
                "via",
                &node.gateway(),
            ]);
        made.then_some(node)
    }

    /// What starts a program there.
    pub fn starter(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// From now on nothing arrives, either way.
    pub fn vanish(&self) {
        let neighbour = |of: &[&str], address: &str, dev: &str| {
            let replace = ["neigh", "replace", address, "lladdr", NOBODY, "dev", dev];
            ip(&[of, &replace, &["nud", "permanent"]].concat())
        };
        assert!(neighbour(&[], &self.address(), &self.outside()));
        assert!(neighbour(
            &["-n", &self.name],
            &self.gateway(),
            &self.inside()
        ));
    }

    pub fn return_to_the_world(&self) {
        let (address, gateway) = (self.address(), self.gateway());
        let (outside, inside) = (self.outside(), self.inside());
        assert!(ip(&["neigh", "del", &address, "dev", &outside]));
        assert!(ip(&[
            "-n", &self.name, "neigh", "del", &gateway, "dev", &inside
        ]));
    }

    fn gateway(&self) -> String {
        format!("10.213.{}.1", self.number)
    }

    fn address(&self) -> String {
        format!("10.213.{}.2", self.number)
    }

    fn outside(&self) -> String {
        format!("{}o", self.name)
    }

    fn inside(&self) -> String {
        format!("{}i", self.name)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The cable goes with its end.
        ip(&["link", "del", &self.outside()]);
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    let ran = Command::new("ip").args(arguments).output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// Lets a device carry packets to and from 127.0.0.1.
fn routes_loopback(starter: &[&str], device: &str) -> bool {
    let write = format!("echo 1 > /proc/sys/net/ipv4/conf/{device}/route_localnet");
    let command = [starter, &["sh", "-c", &write]].concat();
    let ran = Command::new(command[0]).args(&command[1..]).output();
    ran.is_ok_and(|ran| ran.status.success())
}
