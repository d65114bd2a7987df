//! From the names that CLIs use to the internal event types.
//!
//! A native name is first brought to snake case (`PreToolUse`, `preToolUse` → `pre_tool_use`;
//! `session.idle` → `session_idle`; `beforeMCPExecution` → `before_mcp_execution`). Then one table
//! serves all CLIs: no two of them use one name for different things, and Cursor running Claude
//! Code's hooks under either spelling needs no case of its own. Every other name keeps its snake-case
//! form as the event type: the known ones of [`ACTIVITY`] and [`CHUNKS`], and those that nobody knows
//! yet, of which `lanekeeper doctor` warns. They keep their names so that coalescing, which keeps the
//! newest of each type, does not put a file's change in the place of a compaction. [`super::sent`]
//! lists what each CLI sends.
//!
//! | native (snake case) | type | sent by | why |
//! |---|---|---|---|
//! | `session_start`, `session_created` | `session_start` | Claude Code, Codex, Gemini, Cursor; OpenCode | |
//! | `user_prompt_submit`, `before_submit_prompt`, `before_agent`, `chat_message` | `user_prompt_submit` | Claude Code, Codex; Cursor; Gemini; OpenCode | a person's turn begins |
//! | `pre_tool_use`, `before_tool`, `tool_execute_before`, `before_shell_execution`, `before_mcp_execution`, `before_read_file`, `before_tab_file_read` | `tool_use` | all | a tool is about to run |
//! | `post_tool_use`, `post_tool_use_failure`, `after_tool`, `tool_execute_after`, `after_shell_execution`, `after_mcp_execution`, `after_file_edit`, `after_tab_file_edit`, `file_edited` | `tool_done` | all | a tool ran, whatever came of it |
//! | `permission_denied` | `tool_done` | Claude Code | the call ended without running |
//! | `subagent_start`, `subagent_stop` | `tool_done` | Claude Code, Codex, Cursor | activity of the parent's session; a subagent's end is not the end of the turn |
//! | `stop`, `after_agent`, `session_idle`, `agent_turn_complete` | `agent_stop` | Claude Code, Codex, Cursor; Gemini; OpenCode; Codex notify | the turn is over |
//! | `interrupt` | `agent_stop` | Codex | an interrupted turn gets no `Stop` |
//! | `stop_failure`, `session_error` | `error` | Claude Code; OpenCode | the turn ended in an API failure that somebody should see; `native_event` says that the turn is over |
//! | `notification`, `permission_request`, `permission_asked`, `permission_v2_asked`, `permission_updated`, `question_asked`, `question_v2_asked`, `elicitation` | `notification` | Claude Code, Gemini, Codex, OpenCode | the agent waits for a person (`permission_updated` is the older OpenCode name) |
//! | `session_end`, `session_deleted`, `session_delete` | `session_end` | Claude Code, Codex, Gemini, Cursor; OpenCode; Qwen | the agent registry closes the turn; not delivered by default |
//! | `pre_compress` | `pre_compact` | Gemini | the others' word for it; activity |

use std::borrow::Cow;

/// The types that native names are mapped to.
pub const MAPPED: [&str; 8] = [
    "session_start",
    "user_prompt_submit",
    "tool_use",
    "tool_done",
    "agent_stop",
    "notification",
    "error",
    "session_end",
];

/// Known types outside [`MAPPED`]: what an agent does between a prompt and the end of its turn, or
/// beside it. Bursty; delivered only to subscriptions that name them; activity to the agent registry.
pub const ACTIVITY: [&str; 30] = [
    "after_agent_response",
    "after_agent_thought",
    "before_model",
    "before_tool_selection",
    "config_change",
    "cwd_changed",
    "directory_added",
    "elicitation_result",
    EMPTY_PROMPT,
    "file_changed",
    "instructions_loaded",
    "post_compact",
    "post_model_request",
    "post_model_switch",
    "post_tool_batch",
    "pre_compact",
    "pre_model_request",
    "pre_model_switch",
    "session_compacted",
    SESSION_STATUS,
    "setup",
    "task_completed",
    "task_created",
    "teammate_idle",
    "todo_completed",
    "todo_created",
    "user_prompt_expansion",
    "workspace_open",
    "worktree_create",
    "worktree_remove",
];

/// Known types of which there is one for each chunk of an answer: like those of [`ACTIVITY`], but too
/// many for the registry.
pub const CHUNKS: [&str; 2] = ["after_model", "message_display"];

/// The type of a prompt that a CLI reports without text in the middle of a turn.
pub const EMPTY_PROMPT: &str = "empty_prompt";

/// OpenCode's `session.status`: idle, busy or retry.
pub const SESSION_STATUS: &str = "session_status";

/// The type of a call that names no event; on an allowlist, every type outside [`MAPPED`].
pub const UNKNOWN: &str = "unknown";

/// The types of events of which this release knows what they are.
pub fn known() -> impl Iterator<Item = &'static str> {
    MAPPED.into_iter().chain(ACTIVITY).chain(CHUNKS)
}

/// The type of what could not be read at all.
pub const ERROR: &str = "error";

/// Longest event type made from a native name, in bytes. The longest known one has 24.
const MAX_LEN: usize = 100;

/// The internal type of a native event name.
pub fn event_type(native: &str) -> Cow<'static, str> {
    let name = snake_case(native);
    let mapped = match name.as_str() {
        "session_start" | "session_created" => "session_start",
        "user_prompt_submit" | "before_submit_prompt" | "before_agent" | "chat_message" => {
            "user_prompt_submit"
        }
        "pre_tool_use"
        | "before_tool"
        | "tool_execute_before"
        | "before_shell_execution"
        | "before_mcp_execution"
        | "before_read_file"
        | "before_tab_file_read" => "tool_use",
        "post_tool_use"
        | "post_tool_use_failure"
        | "after_tool"
        | "tool_execute_after"
        | "after_shell_execution"
        | "after_mcp_execution"
        | "after_file_edit"
        | "after_tab_file_edit"
        | "file_edited"
        | "permission_denied"
        | "subagent_start"
        | "subagent_stop" => "tool_done",
        "stop" | "after_agent" | "session_idle" | "agent_turn_complete" | "interrupt" => {
            "agent_stop"
        }
        "stop_failure" | "session_error" => ERROR,
        "notification"
        | "permission_request"
        | "permission_asked"
        | "permission_v2_asked"
        | "permission_updated"
        | "question_asked"
        | "question_v2_asked"
        | "elicitation" => "notification",
        "session_end" | "session_deleted" | "session_delete" => "session_end",
        "pre_compress" => "pre_compact",
        "" => UNKNOWN,
        _ => return Cow::Owned(name),
    };
    Cow::Borrowed(mapped)
}

/// Lower-case ASCII words joined by underscores; everything else separates words. Bounded.
pub fn snake_case(native: &str) -> String {
    let chars: Vec<char> = native.chars().take(4 * MAX_LEN).collect();
    let mut name = String::with_capacity(chars.len() + 8);
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        if !c.is_ascii_alphanumeric() {
            if !name.is_empty() && !name.ends_with('_') {
                name.push('_');
            }
            continue;
        }
        // A word starts at an upper-case letter after a small one, and at the last letter of a
        // run of upper-case ones when a small one follows: MCPExecution → mcp_execution.
        let starts_word = c.is_ascii_uppercase()
            && before.is_some_and(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || (b.is_ascii_uppercase()
                        && chars.get(i + 1).is_some_and(char::is_ascii_lowercase))
            });
        if starts_word {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name.truncate(MAX_LEN);
    name.truncate(name.trim_end_matches('_').len());
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn native_names_of_every_cli_map_to_their_type() {
        for (native, expected) in [
            ("SessionStart", "session_start"),
            ("sessionStart", "session_start"),
            ("session.created", "session_start"),
            ("beforeSubmitPrompt", "user_prompt_submit"),
            ("BeforeAgent", "user_prompt_submit"),
            ("PreToolUse", "tool_use"),
            ("beforeMCPExecution", "tool_use"),
            ("tool.execute.before", "tool_use"),
            ("PostToolUseFailure", "tool_done"),
            ("SubagentStart", "tool_done"),
            ("afterFileEdit", "tool_done"),
            ("Stop", "agent_stop"),
            ("stop", "agent_stop"),
            ("agent-turn-complete", "agent_stop"),
            ("session.idle", "agent_stop"),
            ("StopFailure", "error"),
            ("session.error", "error"),
            ("PermissionRequest", "notification"),
            ("permission.asked", "notification"),
            ("permission.v2.asked", "notification"),
            ("question.asked", "notification"),
            ("question.v2.asked", "notification"),
            ("SessionEnd", "session_end"),
            ("SessionDelete", "session_end"),
            ("PreCompress", "pre_compact"),
        ] {
            assert_eq!(event_type(native), expected, "{native}");
        }
    }

    #[test]
    fn names_without_a_mapping_keep_their_snake_case_form() {
        for (native, expected) in [
            ("InstructionsLoaded", "instructions_loaded"),
            ("PreModelSwitch", "pre_model_switch"),
            ("message.part.updated", "message_part_updated"),
            ("workspaceOpen", "workspace_open"),
            ("HTTPServer2Start", "http_server2_start"),
            (" odd -- name! ", "odd_name"),
            ("", "unknown"),
            ("…", "unknown"),
        ] {
            assert_eq!(event_type(native), expected, "{native:?}");
        }
    }

    proptest! {
        #[test]
        fn any_name_becomes_a_plain_bounded_type(native in ".{0,600}") {
            let name = event_type(&native);
            prop_assert!(!name.is_empty() && name.len() <= MAX_LEN);
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
    }
}
