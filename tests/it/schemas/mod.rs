//! F2: JSON Schemas of event types. `apply` has them, and every append is checked against them, whichever way it comes.

mod applying;
mod doors;
mod generated;
mod hostile;
mod keywords;

use lanekeeper_postgres::subscription::{self, Applied};
use lanekeeper_subscription::SubscriptionFile;
use serde_json::Value;
use tokio_postgres::Client;

/// An `order` has a number from 1 and a name.
const ORDERS: &str = r#"
[stream.runs.schema.order]
type = "object"
required = ["number"]
properties = { number = { type = "integer", minimum = 1 }, name = { type = "string" } }
additionalProperties = false
"#;

async fn apply(client: &mut Client, text: &str) -> Applied {
    let file = SubscriptionFile::parse(text, "test.toml").unwrap();
    subscription::apply(client, false, |current| file.plan(current, false))
        .await
        .unwrap()
}

/// What the file makes of a schema.
fn rules(schema: &Value) -> Result<Value, String> {
    let text = format!("[stream.runs.schema]\nt = '''{schema}'''");
    let file = SubscriptionFile::parse(&text, "test.toml").map_err(|error| error.to_string())?;
    Ok(file.streams[0].schemas.as_ref().unwrap()["t"].rules.clone())
}

/// Where the database finds that a value does not match, and by which keyword.
async fn violation(client: &Client, rules: &Value, value: &Value) -> Option<(String, String)> {
    let query = "SELECT v.pointer, v.keyword
                 FROM lanekeeper.schema_violation($1::jsonb -> 'refs', $1::jsonb -> 'schema', $2::jsonb, 32, 100000) AS v";
    let row = client.query_one(query, &[rules, value]).await.unwrap();
    let keyword: Option<String> = row.get(1);
    keyword.map(|keyword| (row.get(0), keyword))
}

/// SQLSTATE, message and DETAIL of a statement that is refused.
async fn refused(client: &Client, statement: &str) -> (String, String, Value) {
    let error = client.batch_execute(statement).await.unwrap_err();
    let said = error.as_db_error().unwrap();
    let detail = said
        .detail()
        .and_then(|text| serde_json::from_str(text).ok());
    (
        said.code().code().to_owned(),
        said.message().to_owned(),
        detail.unwrap_or_default(),
    )
}

async fn events(client: &Client) -> i64 {
    let count = "SELECT count(*) FROM lanekeeper.event";
    client.query_one(count, &[]).await.unwrap().get(0)
}
