//! Where and when a hook call was made.
//!
//! CLIs run hooks in parallel, so the order of arrival is not the order of events. The stamps are
//! taken before anything else is done, and travel in the event's headers.

use std::env;

use jiff::Timestamp;

/// The circumstances of one call.
#[derive(Clone, Debug)]
pub struct Origin {
    pub emitted_at: Timestamp,
    /// Nanoseconds of the host's monotonic clock, 20 digits, a dot and the process id. Of two calls
    /// on one host since its last boot the smaller came first.
    pub emit_order: String,
    pub host: String,
    /// W3C trace context of the caller.
    pub traceparent: Option<String>,
}

impl Origin {
    pub fn now() -> Self {
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanoseconds =
            i128::from(monotonic.tv_sec) * 1_000_000_000 + i128::from(monotonic.tv_nsec);
        Self {
            emitted_at: Timestamp::now(),
            emit_order: format!("{nanoseconds:020}.{}", std::process::id()),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            traceparent: env::var("TRACEPARENT")
                .ok()
                .filter(|value| is_traceparent(value)),
        }
    }
}

/// `version-trace_id-parent_id-flags` in lower-case hexadecimal, ids not all zero.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |part: &str, len| {
        part.len() == len
            && part
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let id = |part: &str, len| hex(part, len) && part.bytes().any(|b| b != b'0');
    match parts.as_slice() {
        [version, trace, parent, flags] => {
            hex(version, 2) && *version != "ff" && id(trace, 32) && id(parent, 16) && hex(flags, 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_calls_have_larger_stamps() {
        let (first, second) = (Origin::now(), Origin::now());
        assert!(first.emit_order < second.emit_order);
        assert!(!first.host.is_empty());
    }

    #[test]
    fn only_well_formed_trace_context_is_taken() {
        assert!(is_traceparent(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        ));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }
}
