//! How a crate declares its section of the configuration.

/// Declares a section so that a setting's type, default and meaning stand in one place. A setting without a doc
/// comment does not compile: docs/reference/settings.md is made from it. The crate that uses it depends on `serde`.
#[macro_export]
macro_rules! section {
    ($(#[doc = $about:literal])+ $(#[derive($($derived:ident),+)])? $name:ident {
        $($(#[doc = $meaning:literal])+ $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Deserialize, serde::Serialize $($(, $derived)+)?)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            /// What the section is about: the text of its doc comment.
            pub const ABOUT: &'static str = concat!($($about),+);
            /// Each setting with its meaning: the text of its doc comment.
            pub const MEANINGS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($key), concat!($($meaning),+))),*];
        }
    };
}
