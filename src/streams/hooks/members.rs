//! The direct members of a JSON object, found without reading what is in them: a document of any
//! depth costs one pass and no recursion.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::string::text_of;

/// The direct members of an object, unread.
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// No members where the value is no object.
    pub fn of(value: &'a RawValue) -> Self {
        serde_json::from_str(value.get()).unwrap_or(Self(Vec::new()))
    }

    /// Of equal keys the last, as `jsonb` has it.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
    }

    /// The text at a path of keys, if there is any.
    pub fn text(&self, path: &str) -> Option<String> {
        match path.split_once('.') {
            None => present(text_of(self.get(path)?)?),
            Some((key, rest)) => Members::of(self.get(key)?).text(rest),
        }
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                // Keys are taken raw: one with a lone surrogate is no string for serde.
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    members.push((text_of(key).unwrap_or_default(), value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Text that says something.
pub fn present(text: Cow<'_, str>) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.into_owned())
}
