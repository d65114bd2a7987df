//! Typed events: enums whose variants have versioned names in the log, and read what older versions wrote.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Events of one kind, as a program's own type. [`events!`](crate::events) implements it for an enum.
pub trait TypedEvent: Sized {
    /// The event types that can be read, old versions included: what a subscription's filter names.
    const TYPES: &'static [&'static str];

    /// What the log calls it. A version is part of the name, as in `ItemAdded.v2`.
    fn event_type(&self) -> &'static str;

    /// As JSON text.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    fn payload(&self) -> Result<String, serde_json::Error>;

    /// Reads one of the log, of whatever version.
    ///
    /// # Errors
    /// No version of this program has such a name, or the payload is not what it stands for.
    fn read(event_type: &str, payload: &str) -> Result<Self, ReadError>;
}

/// Why an event of the log cannot be read. It stays there as it is.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("this program does not know the event type")]
    Unknown,
    #[error("the payload is not of this event type")]
    Unreadable(#[from] serde_json::Error),
}

#[doc(hidden)]
pub fn to_payload<T: Serialize>(body: &T) -> Result<String, serde_json::Error> {
    serde_json::to_string(body)
}

#[doc(hidden)]
pub fn from_payload<T: DeserializeOwned>(payload: &str) -> Result<T, ReadError> {
    Ok(serde_json::from_str(payload)?)
}

/// Declares an enum of events and implements [`TypedEvent`](crate::aggregate::TypedEvent): each variant has a body and the
/// name under which it is appended, then the names and bodies of older versions, which become the new one by `From`.
///
/// ```
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// pub struct Added { pub item: String, pub count: u32 }
/// /// What it was before it had a count.
/// #[derive(Deserialize)]
/// pub struct AddedV1 { pub item: String }
/// impl From<AddedV1> for Added {
///     fn from(was: AddedV1) -> Self { Self { item: was.item, count: 1 } }
/// }
/// #[derive(Serialize, Deserialize)]
/// pub struct Paid { pub cents: u64 }
///
/// lanekeeper_postgres::events! {
///     pub enum Basket {
///         Added(Added) = "ItemAdded.v2", "ItemAdded" => AddedV1;
///         Paid(Paid) = "BasketPaid";
///     }
/// }
///
/// use lanekeeper_postgres::aggregate::TypedEvent;
/// let Ok(Basket::Added(added)) = Basket::read("ItemAdded", r#"{"item":"tea"}"#) else { panic!() };
/// assert_eq!(added.count, 1);
/// assert_eq!(Basket::Added(added).event_type(), "ItemAdded.v2");
/// ```
#[macro_export]
macro_rules! events {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident {
            $(
                $(#[$about_variant:meta])*
                $variant:ident($body:ty) = $event_type:literal $(, $old:literal => $was:ty)*;
            )+
        }
    ) => {
        $(#[$about])*
        $vis enum $name {
            $($(#[$about_variant])* $variant($body),)+
        }

        impl $crate::aggregate::TypedEvent for $name {
            const TYPES: &'static [&'static str] = &[$($event_type, $($old,)*)+];

            fn event_type(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $event_type,)+
                }
            }

            fn payload(
                &self,
            ) -> ::core::result::Result<::std::string::String, $crate::aggregate::PayloadError> {
                match self {
                    $(Self::$variant(body) => $crate::aggregate::to_payload(body),)+
                }
            }

            fn read(
                event_type: &str,
                payload: &str,
            ) -> ::core::result::Result<Self, $crate::aggregate::ReadError> {
                match event_type {
                    $(
                        $event_type => {
                            $crate::aggregate::from_payload::<$body>(payload).map(Self::$variant)
                        }
                        $($old => {
                            let was = $crate::aggregate::from_payload::<$was>(payload)?;
                            Ok(Self::$variant(::core::convert::From::from(was)))
                        })*
                    )+
                    _ => Err($crate::aggregate::ReadError::Unknown),
                }
            }
        }
    };
}
