//! When a file was changed, as far as that is known.

use sateen_types::Timespec;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// The mtime lies between these two; `None` after a crash, until somebody looks.
    mtime: Option<(Timespec, Timespec)>,
    /// The ctime that was seen when nobody changed anything, if nobody has since.
    ctime: Option<Timespec>,
    /// A crash has met it since it was changed last: the MDT sets the ctime when it hears what is left.
    is_doubtful: bool,
}

impl Times {
    /// It was changed between these two.
    pub fn changed(&mut self, from: Timespec, to: Timespec) {
        self.mtime = Some((from, to));
        self.is_doubtful = false;
    }

    /// It was changed between these two, or not. One that was set may have been yet to come.
    pub fn may_be_changed(&mut self, from: Timespec, to: Timespec) {
        self.mtime = self.mtime.map(|(least, most)| (least.min(from), most.max(to)));
    }

    /// Nobody knows.
    pub fn forget(&mut self) {
        *self = Times { is_doubtful: true, ..Times::default() };
    }

    /// Something that sets the ctime is done, or was.
    pub fn touched(&mut self) {
        self.ctime = None;
    }

    /// Somebody was told this mtime: it stays so.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn saw_mtime(&mut self, mtime: Timespec) -> Result<(), String> {
        if let Some((from, to)) = self.mtime.filter(|(from, to)| mtime < *from || *to < mtime) {
            return Err(format!("mtime {mtime:?}, and not from {from:?} to {to:?}"));
        }
        self.mtime = Some((mtime, mtime));
        Ok(())
    }

    /// Somebody was told this ctime while nobody changes anything, and nothing is to be told that was
    /// changed before.
    ///
    /// # Errors
    /// If it is another than before.
    pub fn saw_ctime(&mut self, ctime: Timespec) -> Result<(), String> {
        if self.is_doubtful {
            return Ok(());
        }
        match self.ctime.replace(ctime).filter(|before| *before != ctime) {
            Some(before) => Err(format!("ctime {ctime:?}, and {before:?} before it was read")),
            None => Ok(()),
        }
    }
}
