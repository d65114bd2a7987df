//! docs/reference/errors.md, generated from the SQLSTATEs, problem types and exit codes in the code.

use std::collections::BTreeSet;

use lanekeeper_cli::Failure;
use lanekeeper_http::problem::Problem;
use lanekeeper_http::problem_type::PROBLEM_TYPES;
use lanekeeper_postgres::Refusal;
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::appender::AppenderError;
use lanekeeper_postgres::document::DocumentError;
use lanekeeper_postgres::migrate::schema;
use lanekeeper_postgres::sqlstate::{SQLSTATES, VERSION_CONFLICT};

use super::{code, keep, page, table};

/// The codes of class LK that the schema's files raise.
fn raised() -> BTreeSet<String> {
    let mut raised = BTreeSet::new();
    for file in schema::files() {
        let codes = file.text.split("ERRCODE = '").skip(1);
        raised.extend(codes.filter_map(|rest| Some(rest.split_once('\'')?.0.to_owned())));
    }
    // Others are Postgres' own, and mean here what they mean there.
    raised.retain(|code: &String| code.starts_with("LK"));
    raised
}

/// The Rust variant of a code, and the problem that the API answers with.
fn counterparts(sqlstate: &str) -> (String, String) {
    let refusal = Refusal {
        message: String::new(),
        hint: None,
    };
    if sqlstate == VERSION_CONFLICT {
        let conflict = DocumentError::Conflict {
            version: 1,
            refusal,
        };
        let of = Problem::of_document(&conflict).problem_type();
        return (
            code("DocumentError::Conflict"),
            format!("{} {}", of.status.as_u16(), code(of.code)),
        );
    }
    let Ok(error) = AppendError::of_schema(sqlstate, refusal) else {
        return (code("StoreError::refusal"), String::new());
    };
    let variant = format!("{error:?}");
    let variant = variant.split('(').next().unwrap_or_default();
    let of = Problem::from(AppenderError::Append(error.into())).problem_type();
    (
        code(&format!("AppendError::{variant}")),
        format!("{} {}", of.status.as_u16(), code(of.code)),
    )
}

#[test]
fn the_page_of_the_errors_is_what_the_code_answers() {
    let mut text = page(
        "Errors",
        "A refused call changes nothing: its message says what is wrong, and its hint what to do. Only `outcome_unknown` \
         leaves open whether the events were appended.",
    );

    text.push_str(
        "\n## SQLSTATEs\n\nThe schema's functions raise codes of class `LK`. Any other code is PostgreSQL's own and \
         keeps its meaning. A reserved code is raised by no function yet.\n",
    );
    let raised = raised();
    let known: BTreeSet<String> = SQLSTATES
        .iter()
        .map(|(code, _)| (*code).to_owned())
        .collect();
    assert!(
        raised.is_subset(&known),
        "{raised:?} are raised, {known:?} described"
    );
    let states = SQLSTATES.iter().map(|(state, says)| {
        let is_raised = raised.contains(*state);
        let (rust, http) = if is_raised {
            counterparts(state)
        } else {
            Default::default()
        };
        let use_ = if is_raised { "raised" } else { "reserved" };
        [
            code(state),
            says.trim().to_owned(),
            use_.to_owned(),
            rust,
            http,
        ]
    });
    text.push_str(&table(
        ["SQLSTATE", "meaning", "use", "in Rust", "over HTTP"],
        states,
    ));

    text.push_str(
        "\n## HTTP\n\nA refused request is answered with a problem document (RFC 9457, `application/problem+json`): \
         `type` is `urn:lanekeeper:problem:` and the code, beside `title`, `status`, `detail`, `code` and sometimes \
         `hint`.\n",
    );
    let mut types: Vec<_> = PROBLEM_TYPES.iter().collect();
    types.sort_by_key(|of| (of.status.as_u16(), of.code));
    let problems = types.into_iter().map(|of| {
        [
            of.status.as_u16().to_string(),
            code(of.code),
            of.says.trim().to_owned(),
        ]
    });
    text.push_str(&table(["status", "code", "meaning"], problems));

    text.push_str(
        "\n## Exit codes\n\nThose of every command. `hook` always exits 0: agent CLIs take 2 as an order to block what \
         the agent is doing. `dev -- COMMAND` exits as the command does.\n",
    );
    let exits = Failure::EXIT_CODES.map(|(code, says)| [code.to_string(), says.to_owned()]);
    text.push_str(&table(["code", "meaning"], exits));
    keep("errors", &text);
}
