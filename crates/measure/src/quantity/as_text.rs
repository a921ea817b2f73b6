//! Values of other crates in their text form, for `#[serde(with = "as_text")]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Writes the text.
///
/// # Errors
///
/// Those of `serializer`.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Parses the text.
///
/// # Errors
///
/// Those of `deserializer` and of the parser.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// The same for values that may be missing.
pub mod option {
    use super::{Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Serialize as _};

    /// Writes the text, if there is one.
    ///
    /// # Errors
    ///
    /// Those of `serializer`.
    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value
            .as_ref()
            .map(ToString::to_string)
            .serialize(serializer)
    }

    /// Parses the text, if there is one.
    ///
    /// # Errors
    ///
    /// Those of `deserializer` and of the parser.
    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        let value = text.map(|text| text.parse()).transpose();
        value.map_err(D::Error::custom)
    }
}
