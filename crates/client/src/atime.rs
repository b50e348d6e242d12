//! When reading a file sets its atime: Linux's rules.

use sateen_types::{Attr, Timespec};

/// One day in seconds.
const DAY_S: i64 = 24 * 60 * 60;

/// What reading does to the atime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtimePolicy {
    /// Sets it if the file was not read since it was last changed, or not for a day
    /// (`relatime`).
    #[default]
    Relative,
    /// Sets it each time (`strictatime`).
    Strict,
    /// Leaves it alone (`noatime`, `O_NOATIME`).
    Never,
}

impl AtimePolicy {
    /// Whether a file with these attributes was not read since it was last changed, as far as
    /// its atime tells, and reading it would change that.
    pub fn is_unread(self, attr: &Attr) -> bool {
        match self {
            AtimePolicy::Relative => attr.atime <= attr.mtime || attr.atime <= attr.ctime,
            AtimePolicy::Strict => true,
            AtimePolicy::Never => false,
        }
    }

    /// Whether reading it now sets the atime.
    pub(crate) fn sets(self, attr: &Attr, now: Timespec) -> bool {
        let is_old =
            self == AtimePolicy::Relative && now.sec.saturating_sub(attr.atime.sec) >= DAY_S;
        attr.atime < now && (is_old || self.is_unread(attr))
    }
}
