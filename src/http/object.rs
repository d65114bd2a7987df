//! Reads a request's body that is one JSON object.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// By itself serde reads a struct from an array of its fields too.
///
/// # Errors
/// It is no object, or none of this type.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    let object: Map<String, Value> = serde_json::from_slice(body)?;
    serde_json::from_value(Value::Object(object))
}
