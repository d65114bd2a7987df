//! docs/reference/sql.md, generated from the catalogue of a migrated database and the headers of the schema's files.

use std::fmt::Write as _;

use lanekeeper_postgres::migrate::schema;
use tokio_postgres::Client;

use super::{code, keep, page, table};
use crate::document::{blocks, repository, section};
use crate::support::TestDb;

/// What an operator calls. A row of `operation` records each call that concerns a lane, a session or a subscription.
const OPERATOR_FUNCTIONS: [&str; 13] = [
    "bind_session",
    "cancel",
    "change_lane",
    "change_replay",
    "close_session",
    "drop_dead_letter",
    "interrupt",
    "pause_subscription",
    "reopen_session",
    "replay_ranges",
    "requeue_dead_letters",
    "set_producers",
    "start_replay",
];

/// What the documented grants of a page name.
fn granted_functions(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository(page)).unwrap();
    let grants = blocks(section(&text, "Roles"), "sql").concat();
    let names = grants.split("lanekeeper.").skip(1);
    names
        .filter_map(|rest| Some(rest.split_once('(')?.0.to_owned()))
        .collect()
}

/// The comment that stands directly above a statement, or at the head of a file: its paragraphs.
fn paragraphs(comment: &str) -> Vec<String> {
    let lines: Vec<&str> = comment
        .lines()
        .map_while(|line| line.strip_prefix("--"))
        .map(str::trim)
        // For whoever changes it.
        .filter(|line| !line.starts_with("Index:"))
        .collect();
    lines
        .split(|line| line.is_empty())
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.join(" "))
        .collect()
}

/// What a function or view promises: the first paragraph of its file's head, and those that name its errors.
fn promise(name: &str) -> String {
    let file = format!("/{name}.sql");
    let files = schema::files();
    let file = files
        .iter()
        .find(|candidate| candidate.path.ends_with(&file))
        .unwrap_or_else(|| panic!("{name} has no file"));
    let paragraphs = paragraphs(&file.text);
    let said: Vec<&str> = paragraphs
        .iter()
        .enumerate()
        .filter(|(at, text)| *at == 0 || text.contains("SQLSTATE"))
        .map(|(_, text)| text.as_str())
        .collect();
    assert!(!said.is_empty(), "{} has no head", file.path);
    said.join("\n\n")
}

/// Names of functions stay as they are, not as emphasis or links.
fn escaped(text: &str) -> String {
    text.replace('*', "\\*")
        .replace('_', "\\_")
        .replace('<', "\\<")
}

async fn function(client: &Client, name: &str) -> String {
    let rows = client
        .query(
            "SELECT pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
             FROM pg_proc AS p WHERE p.pronamespace = 'lanekeeper'::regnamespace AND p.proname = $1",
            &[&name],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "{name} has one signature");
    let arguments: String = rows[0].get(0);
    let result: String = rows[0].get(1);
    let arguments = arguments
        .split(", ")
        .map(|argument| format!("    {argument}"))
        .collect::<Vec<_>>()
        .join(",\n");
    format!(
        "\n### lanekeeper.{name}\n\n```text\nlanekeeper.{name}(\n{arguments}\n) RETURNS {result}\n```\n\n{}\n",
        escaped(&promise(name))
    )
}

async fn columns(client: &Client, relation: &str) -> String {
    let rows = client
        .query(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod)
             FROM pg_attribute AS a
             JOIN pg_class AS c ON c.oid = a.attrelid
             WHERE c.relnamespace = 'lanekeeper'::regnamespace AND c.relname = $1
               AND a.attnum > 0 AND NOT a.attisdropped
             ORDER BY a.attnum",
            &[&relation],
        )
        .await
        .unwrap();
    assert!(!rows.is_empty(), "{relation} has no columns");
    let rows = rows.iter().map(|row| [code(row.get(0)), code(row.get(1))]);
    table(["column", "type"], rows)
}

/// The views for people.
fn views() -> Vec<String> {
    schema::files()
        .into_iter()
        .filter_map(|file| {
            let (_, name) = file.path.split_once("functions/view/")?;
            Some(name.trim_end_matches(".sql").to_owned())
        })
        .collect()
}

#[tokio::test]
async fn the_page_of_the_sql_is_what_the_schema_has() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let mut text = page(
        "SQL",
        "The functions and views of the schema `lanekeeper` that are for use from outside. Everything else in it belongs \
         to the workers and changes without notice. [Errors](errors.md#sqlstates) has the SQLSTATEs.",
    );
    text.push_str(
        "\n## Functions for producers and receivers\n\n[Producers](../producers.md#roles) has the grants that they need.\n",
    );
    let producers = granted_functions("docs/producers.md");
    assert!(producers.len() >= 3, "{producers:?}");
    for name in producers {
        text.push_str(&function(&client, &name).await);
    }
    text.push_str(
        "\n## Functions for documents\n\n[Documents](../documents.md#roles) has the grants that they need.\n",
    );
    let documents = granted_functions("docs/documents.md");
    assert!(documents.len() >= 7, "{documents:?}");
    for name in documents {
        text.push_str(&function(&client, &name).await);
    }
    text.push_str(
        "\n## Functions for aggregates\n\n[Aggregates](../aggregates.md#roles) has the grants that they need. The library calls them.\n",
    );
    let aggregates = granted_functions("docs/aggregates.md");
    let own = aggregates.iter().filter(|name| *name != "enqueue_at");
    assert_eq!(own.clone().count(), 3, "{aggregates:?}");
    for name in own {
        text.push_str(&function(&client, name).await);
    }
    text.push_str(
        "\n## Functions for operators\n\nThe commands `lane`, `session`, `subscription`, `dead` and `cancel` call them. They \
         need the role that owns the schema; `close_session`, `reopen_session`, `interrupt` and `cancel` only EXECUTE, which a \
         producer's role may be granted.\n",
    );
    for name in OPERATOR_FUNCTIONS {
        text.push_str(&function(&client, name).await);
    }
    text.push_str("\n## Views\n");
    let views = views();
    assert!(views.len() >= 6, "{views:?}");
    for name in views {
        let about = escaped(&promise(&name));
        let columns = columns(&client, &name).await;
        write!(text, "\n### lanekeeper.{name}\n\n{about}\n{columns}").unwrap();
    }
    text.push_str("\n## Tables\n\nThe other tables are for the workers.\n");
    let columns = columns(&client, "operation").await;
    write!(
        text,
        "\n### lanekeeper.operation\n\nEvery operator action, with the role that performed it and the reason.\n{columns}"
    )
    .unwrap();
    keep("sql", &text);
}
