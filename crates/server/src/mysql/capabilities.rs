//! The capability flags of MySQL's protocol.

/// The capabilities of one side, or those that both sides have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities(pub(crate) u32);

macro_rules! capabilities {
    ($($name:ident = $bit:literal,)*) => {
        impl Capabilities {
            $(pub(crate) const $name: Self = Self(1 << $bit);)*
        }
    };
}

capabilities! {
    LONG_PASSWORD = 0,
    FOUND_ROWS = 1,
    LONG_FLAG = 2,
    CONNECT_WITH_DB = 3,
    COMPRESS = 5,
    LOCAL_FILES = 7,
    IGNORE_SPACE = 8,
    PROTOCOL_41 = 9,
    INTERACTIVE = 10,
    TLS = 11,
    TRANSACTIONS = 13,
    SECURE_CONNECTION = 15,
    MULTI_STATEMENTS = 16,
    MULTI_RESULTS = 17,
    PS_MULTI_RESULTS = 18,
    PLUGIN_AUTH = 19,
    CONNECT_ATTRIBUTES = 20,
    PLUGIN_AUTH_LENGTH = 21,
    DEPRECATE_EOF = 24,
    ZSTD = 26,
}

impl Capabilities {
    /// The server's capabilities, without TLS, which needs a certificate.
    pub(crate) const OURS: Self = Self(
        Self::LONG_PASSWORD.0
            | Self::FOUND_ROWS.0
            | Self::LONG_FLAG.0
            | Self::CONNECT_WITH_DB.0
            | Self::COMPRESS.0
            | Self::LOCAL_FILES.0
            | Self::IGNORE_SPACE.0
            | Self::PROTOCOL_41.0
            | Self::INTERACTIVE.0
            | Self::TRANSACTIONS.0
            | Self::SECURE_CONNECTION.0
            | Self::MULTI_STATEMENTS.0
            | Self::MULTI_RESULTS.0
            | Self::PS_MULTI_RESULTS.0
            | Self::PLUGIN_AUTH.0
            | Self::CONNECT_ATTRIBUTES.0
            | Self::PLUGIN_AUTH_LENGTH.0
            | Self::DEPRECATE_EOF.0
            | Self::ZSTD.0,
    );

    pub(crate) fn has(self, ability: Self) -> bool {
        self.0 & ability.0 != 0
    }

    /// The capabilities of both sides.
    pub(crate) fn shared(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The same with a capability set or cleared.
    pub(crate) fn with(self, ability: Self, on: bool) -> Self {
        match on {
            true => Self(self.0 | ability.0),
            false => Self(self.0 & !ability.0),
        }
    }
}
