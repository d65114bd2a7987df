//! How a crate declares its section of the configuration.

/// Declares a section so that a setting's type, default and meaning stand in one place. The crate that uses it
/// depends on `serde`.
#[macro_export]
macro_rules! section {
    ($(#[$about:meta])* $name:ident {
        $($(#[$meaning:meta])* $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
        pub struct $name {
            $($(#[$meaning])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}
