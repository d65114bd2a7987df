//! What a run does next: three steps, and what takes each of them back. It decides by the events of the run alone, and
//! touches nothing.
//!
//! ```text
//! RunRequested ─► reserve ─► WorkspaceReserved ─► start ─► AgentStarted ─ … ResultReported ─► verify ─► ResultVerified
//!                    │ StepFailed                   │ StepFailed   │ DeadlinePassed             │ StepFailed   completed
//!                    │                              │              └──────────┬─────────────────┘
//!                    ▼                              ▼                         ▼
//!               compensated ◄─ WorkspaceReleased ◄─ release ◄─ AgentStopped ◄─ stop
//! ```

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    ReserveWorkspace,
    StartAgent,
    VerifyResult,
}

impl Step {
    pub const ALL: [Self; 3] = [Self::ReserveWorkspace, Self::StartAgent, Self::VerifyResult];

    /// The event that says that it is done.
    pub fn done(self) -> &'static str {
        match self {
            Self::ReserveWorkspace => "WorkspaceReserved",
            Self::StartAgent => "AgentStarted",
            Self::VerifyResult => "ResultVerified",
        }
    }

    /// The event that says that it is taken back. Nothing can fail behind the last step.
    pub fn undone(self) -> &'static str {
        match self {
            Self::ReserveWorkspace => "WorkspaceReleased",
            Self::StartAgent => "AgentStopped",
            Self::VerifyResult => "ResultWithdrawn",
        }
    }
}

pub const REQUESTED: &str = "RunRequested";
/// The agent says what it made. It comes from outside, late, or never.
pub const REPORTED: &str = "ResultReported";
pub const FAILED: &str = "StepFailed";
pub const TIMED_OUT: &str = "DeadlinePassed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Forward,
    Backward,
    Completed,
    Compensated,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
        }
    }

    pub fn of(word: &str) -> Option<Self> {
        let all = [
            Self::Forward,
            Self::Backward,
            Self::Completed,
            Self::Compensated,
        ];
        all.into_iter().find(|phase| phase.as_str() == word)
    }
}

/// Where a run stands: its first `done` steps are done and not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub phase: Phase,
    pub done: usize,
}

/// What an event makes the program do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Do(Step),
    Undo(Step),
    /// What comes next comes from outside; or the run has ended; or the event came too late.
    Nothing,
}

impl Run {
    /// Takes in an event. The events of a run come in their order, each once.
    pub fn take(&mut self, event_type: &str) -> Action {
        let next = Step::ALL.get(self.done).copied();
        let last = self.done.checked_sub(1).map(|last| Step::ALL[last]);
        match (self.phase, event_type) {
            (Phase::Forward, REQUESTED) if self.done == 0 => Action::Do(Step::ReserveWorkspace),
            (Phase::Forward, REPORTED) if next == Some(Step::VerifyResult) => {
                Action::Do(Step::VerifyResult)
            }
            (Phase::Forward, FAILED) => self.back(),
            (Phase::Forward, TIMED_OUT) if next == Some(Step::VerifyResult) => self.back(),
            (Phase::Forward, done) if next.is_some_and(|step| step.done() == done) => {
                self.done += 1;
                match Step::ALL.get(self.done) {
                    // That one waits for the agent.
                    Some(Step::VerifyResult) => Action::Nothing,
                    Some(step) => Action::Do(*step),
                    None => {
                        self.phase = Phase::Completed;
                        Action::Nothing
                    }
                }
            }
            (Phase::Backward, undone) if last.is_some_and(|step| step.undone() == undone) => {
                self.done -= 1;
                self.back()
            }
            // Such as a result that comes behind the deadline.
            _ => Action::Nothing,
        }
    }

    /// The last step that is done goes first.
    fn back(&mut self) -> Action {
        match self.done.checked_sub(1) {
            Some(last) => {
                self.phase = Phase::Backward;
                Action::Undo(Step::ALL[last])
            }
            None => {
                self.phase = Phase::Compensated;
                Action::Nothing
            }
        }
    }
}
