//! Units of time that limits count in.

/// The length of a limit's window. The numbers are those of `RateLimitResponse.RateLimit.Unit` on
/// the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// 1 s.
    Second = 1,
    /// 60 s.
    Minute = 2,
    /// 3,600 s.
    Hour = 3,
    /// 86,400 s.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// 7 days. Weeks start on Thursday, because the epoch did.
    Week = 7,
}

impl Unit {
    /// Returns the unit with this wire number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Second),
            2 => Some(Self::Minute),
            3 => Some(Self::Hour),
            4 => Some(Self::Day),
            5 => Some(Self::Month),
            6 => Some(Self::Year),
            7 => Some(Self::Week),
            _ => None,
        }
    }

    /// Returns the wire number, 1 to 7.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the length of the window in seconds.
    #[must_use]
    pub fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// Returns the name on the wire: `SECOND`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }
}
