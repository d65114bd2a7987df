//! Backpressure classes of the event types that hooks produce.
//!
//! The list that the engine obeys is the `critical` column of the `hooks` stream; this is the same
//! rule for the producer's side, where no database is at hand: the spool keeps its last tenth for
//! critical events.

/// How much an event may be pushed around under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Never dropped, merged or reordered.
    Critical,
    /// May be coalesced, newest wins, inside the segment between two critical events.
    Bursty,
}

impl Class {
    /// The class of an internal event type; types that nobody mapped are bursty.
    pub fn of(event_type: &str) -> Self {
        match event_type {
            "session_start" | "user_prompt_submit" | "agent_stop" | "session_end"
            | "notification" | "error" => Self::Critical,
            _ => Self::Bursty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tool_activity_and_unmapped_types_are_bursty() {
        for bursty in ["tool_use", "tool_done", "pre_compact", "message_display"] {
            assert_eq!(Class::of(bursty), Class::Bursty, "{bursty}");
        }
        for critical in ["session_start", "agent_stop", "session_end", "error"] {
            assert_eq!(Class::of(critical), Class::Critical, "{critical}");
        }
    }
}
