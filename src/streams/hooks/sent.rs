//! What each agent CLI sends, by its native names, as of the release that was looked at.
//!
//! Nothing here decides how a call is stored: [`super::event_type`] serves every name. The lists say what
//! the wiring of docs/hooks.md registers, and tests compare: each name is known, and each snippet registers
//! those that become one of the mapped types.

use super::event_type::{MAPPED, SESSION_STATUS, event_type};
use super::shape::AgentCli;

/// What one CLI sends.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub cli: AgentCli,
    /// The release whose names these are.
    pub release: &'static str,
    pub events: &'static [&'static str],
    /// Those of `events` that tell nothing which another of them does not tell too.
    pub spare: &'static [&'static str],
}

impl Sent {
    /// The events that wiring registers: those that become a mapped type, or end a turn in the registry.
    pub fn wired(&self) -> impl Iterator<Item = &'static str> {
        let is_used = |event: &str| {
            let kind = event_type(event);
            MAPPED.contains(&&*kind) || kind == SESSION_STATUS
        };
        let events = self.events.iter().copied();
        events.filter(move |event| is_used(event) && !self.spare.contains(event))
    }
}

/// One entry for each CLI.
pub const SENT: [Sent; AgentCli::ALL.len()] = [
    Sent {
        cli: AgentCli::ClaudeCode,
        release: "2.1.330",
        events: &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "PermissionDenied",
            "PermissionRequest",
            "Notification",
            "Elicitation",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "StopFailure",
            "SessionEnd",
            "PostToolBatch",
            "UserPromptExpansion",
            "PreCompact",
            "PostCompact",
            "PreModelSwitch",
            "PostModelSwitch",
            "Setup",
            "TeammateIdle",
            "TaskCreated",
            "TaskCompleted",
            "ElicitationResult",
            "ConfigChange",
            "WorktreeCreate",
            "WorktreeRemove",
            "InstructionsLoaded",
            "CwdChanged",
            "FileChanged",
            "DirectoryAdded",
            "MessageDisplay",
        ],
        // A person is told of a permission that is asked for by `Notification`.
        spare: &["PermissionRequest"],
    },
    Sent {
        cli: AgentCli::Codex,
        release: "0.169.0",
        events: &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PermissionRequest",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "Interrupt",
            "SessionEnd",
            "PreCompact",
            "PostCompact",
            "PreModelRequest",
            "PostModelRequest",
        ],
        spare: &[],
    },
    Sent {
        cli: AgentCli::CodexNotify,
        release: "0.169.0",
        events: &["agent-turn-complete"],
        spare: &[],
    },
    Sent {
        cli: AgentCli::Gemini,
        release: "0.61.0",
        events: &[
            "SessionStart",
            "BeforeAgent",
            "BeforeTool",
            "AfterTool",
            "AfterAgent",
            "Notification",
            "SessionEnd",
            "PreCompress",
            "BeforeModel",
            "AfterModel",
            "BeforeToolSelection",
        ],
        spare: &[],
    },
    Sent {
        cli: AgentCli::Cursor,
        release: "3.8",
        events: &[
            "sessionStart",
            "beforeSubmitPrompt",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "subagentStart",
            "subagentStop",
            "stop",
            "sessionEnd",
            "beforeShellExecution",
            "afterShellExecution",
            "beforeMCPExecution",
            "afterMCPExecution",
            "beforeReadFile",
            "afterFileEdit",
            "beforeTabFileRead",
            "afterTabFileEdit",
            "preCompact",
            "afterAgentResponse",
            "afterAgentThought",
            "workspaceOpen",
        ],
        // `preToolUse` and `postToolUse` report the agent's tools whatever they are; the completions in
        // the editor ("tab") belong to no turn.
        spare: &[
            "beforeShellExecution",
            "afterShellExecution",
            "beforeMCPExecution",
            "afterMCPExecution",
            "beforeReadFile",
            "afterFileEdit",
            "beforeTabFileRead",
            "afterTabFileEdit",
        ],
    },
    Sent {
        cli: AgentCli::OpenCode,
        release: "1.18.33",
        // Those that the plugin of docs/hooks.md could pass on; OpenCode has more, such as one for each
        // part of a message.
        events: &[
            "session.created",
            "chat.message",
            "tool.execute.before",
            "tool.execute.after",
            "permission.asked",
            "permission.v2.asked",
            "question.asked",
            "question.v2.asked",
            "session.idle",
            "session.error",
            "session.deleted",
            "session.status",
            "session.compacted",
        ],
        spare: &[],
    },
    Sent {
        cli: AgentCli::Qwen,
        release: "0.24.4",
        events: &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "PermissionRequest",
            "PermissionDenied",
            "Notification",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "StopFailure",
            "SessionEnd",
            "SessionDelete",
            "TodoCreated",
            "TodoCompleted",
            "PreCompact",
            "PostCompact",
        ],
        spare: &["PermissionRequest"],
    },
];

#[cfg(test)]
mod tests {
    use super::super::event_type::known;
    use super::*;

    #[test]
    fn each_cli_has_an_entry_and_each_event_that_it_sends_is_known() {
        assert_eq!(SENT.map(|sent| sent.cli), AgentCli::ALL);
        for Sent { cli, events, .. } in SENT {
            for event in events {
                let kind = event_type(event);
                assert!(known().any(|known| known == kind), "{cli}: {event}");
            }
        }
    }

    #[test]
    fn the_newest_claude_code_codex_and_gemini_send_as_many_events_as_were_counted() {
        let count = |cli| {
            let of_cli = SENT.iter().find(|sent| sent.cli == cli);
            let events = of_cli.map_or(&[][..], |sent| sent.events);
            let names: std::collections::BTreeSet<_> = events.iter().collect();
            assert_eq!(names.len(), events.len(), "{cli}: a name stands twice");
            names.len()
        };
        assert_eq!(count(AgentCli::ClaudeCode), 33);
        assert_eq!(count(AgentCli::Codex), 14);
        assert_eq!(count(AgentCli::Gemini), 11);
    }

    #[test]
    fn only_mapped_events_are_wired_and_spare_ones_are_not() {
        for sent in SENT {
            assert!(sent.wired().count() > 0, "{}", sent.cli);
            for event in sent.spare {
                assert!(sent.events.contains(event), "{}: {event}", sent.cli);
                assert!(sent.wired().all(|wired| wired != *event));
            }
        }
        let claude = SENT[0].wired().collect::<Vec<_>>();
        assert!(claude.contains(&"StopFailure") && !claude.contains(&"PreCompact"));
    }
}
