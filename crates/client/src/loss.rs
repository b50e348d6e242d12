//! That something which was acknowledged may be lost, and who has been told.
//!
//! It is the business of the program that made it: the next fsync of the file says so, once.
//! A sync of everything says so as well, once, and takes nothing away from that.

/// See the module. The greater one outweighs the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Loss {
    /// Nothing is, or whoever it belongs to knows.
    #[default]
    None,
    /// A sync of everything has said so.
    Shown,
    /// Nobody has been told.
    New,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// An fsync of the file or directory.
    Owner,
    /// A sync of everything.
    Everybody,
}

impl Loss {
    /// One that was just found, or none.
    pub(crate) fn found(lost: bool) -> Loss {
        if lost { Loss::New } else { Loss::None }
    }

    /// This one, or that of `other` if it outweighs it.
    pub(crate) fn add(&mut self, other: Loss) {
        *self = (*self).max(other);
    }

    /// Whether the asker is to be told, which is noted.
    pub(crate) fn tell(&mut self, asker: Asker) -> bool {
        let before = *self;
        match asker {
            Asker::Owner => *self = Loss::None,
            Asker::Everybody => *self = before.min(Loss::Shown),
        }
        before == Loss::New || before == Loss::Shown && asker == Asker::Owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_the_owner_in_any_case() {
        for everybody_first in [true, false] {
            let mut loss = Loss::found(true);
            if everybody_first {
                assert!(loss.tell(Asker::Everybody) && !loss.tell(Asker::Everybody));
            }
            assert!(loss.tell(Asker::Owner));
            assert!(!loss.tell(Asker::Owner) && !loss.tell(Asker::Everybody));
        }
    }

    #[test]
    fn what_is_found_later_is_told_to_everybody_again() {
        let mut loss = Loss::found(true);
        loss.tell(Asker::Everybody);
        loss.add(Loss::None);
        assert!(!loss.tell(Asker::Everybody));
        loss.add(Loss::New);
        assert!(loss.tell(Asker::Everybody) && loss.tell(Asker::Owner));
    }
}
