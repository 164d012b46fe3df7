//! Values of the rows of these tables.

/// A value in a row of one of the tables.
pub(super) enum Value {
    Text(String),
    Number(u64),
    /// Microseconds since 1970.
    Time(i64),
    Null,
}

impl Value {
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::Time(_) | Self::Null => None,
        }
    }

    pub fn time(&self) -> Option<i64> {
        match self {
            Self::Time(time) => Some(*time),
            Self::Text(_) | Self::Number(_) | Self::Null => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Time(_) | Self::Null => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
