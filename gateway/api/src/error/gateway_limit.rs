//! The limits of a gateway that a request can reach: then it is answered with 503.

/// Makes the limits from one list: each with its name in the log and in the metrics.
macro_rules! gateway_limits {
    ($($(#[$meaning:meta])* $limit:ident = $name:literal,)*) => {
        /// A limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum GatewayLimit {
            $($(#[$meaning])* $limit,)*
        }

        impl GatewayLimit {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$limit,)*];

            /// Its name in the log and in the metrics.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$limit => $name,)*
                }
            }
        }
    };
}

gateway_limits! {
    /// Commands that wait for the leader of a partition.
    Queue = "the appender's queue",
    /// Calls in flight.
    Calls = "calls in flight",
    /// Calls of one merchant in flight.
    CallsOfMerchant = "calls of one merchant in flight",
    /// Calls in flight that other merchants leave to one.
    CallsLeftToMerchant = "calls that others leave to one merchant",
    /// Calls of one merchant in a second.
    CallRateOfMerchant = "rate of one merchant's calls",
    /// Look-ups of unknown keys at once.
    KeyLookups = "look-ups of keys",
    /// Look-ups of host names of one merchant at once.
    NameLookups = "look-ups of host names",
    /// Open connections to providers.
    ProviderConnections = "open connections to providers",
    /// Memory of long bodies, or of their conversions.
    BodyMemory = "memory of long bodies",
    /// One merchant's share of the memory of long bodies.
    BodyMemoryOfMerchant = "memory of one merchant's long bodies",
    /// Conversions of one merchant at once.
    ConversionsOfMerchant = "conversions of one merchant",
    /// Calls of one key that wait until they are counted against its rate limit.
    CountsOfKey = "counts of one key's calls",
    /// Reads at once.
    Reads = "reads at once",
    /// Reads of one merchant at once.
    ReadsOfMerchant = "reads at once of one merchant",
    /// Short reads at once of one merchant, or of one address before its merchant is known.
    ShortReads = "short reads at once of one merchant or address",
}
