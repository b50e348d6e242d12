//! Errors of writes that were answered before they were written out: who is told, and how often.

use sateen_types::{Errno, Result};

use crate::loss::Loss;

/// Writes that were answered and could not be written out.
#[derive(Debug, Default)]
pub(crate) struct LateErrors {
    /// How many times it happened: who was told knows up to which.
    count: u32,
    /// Up to which any program has heard of it.
    heard: u32,
    /// Up to which a sync of everything has told.
    shown: u32,
    /// And a rename.
    renamed: u32,
    errno: Option<Errno>,
}

impl LateErrors {
    pub(super) fn add(&mut self, errno: Errno) {
        self.count += 1;
        self.errno = Some(errno);
    }

    /// How many there were so far: a close of a descriptor of now tells of later ones.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Of how many some program has heard: a sync tells of the others, whoever asks.
    pub(crate) fn heard(&self) -> u32 {
        self.heard
    }

    /// Whether there is one of which no program has heard.
    pub(super) fn is_unheard(&self) -> bool {
        self.heard != self.count
    }

    /// A program was told that all may be lost.
    pub(crate) fn hear(&mut self) {
        self.heard = self.count;
    }

    /// What is left to be told when the inode is dropped.
    pub(crate) fn left(&self) -> Loss {
        match (self.heard == self.count, self.is_shown()) {
            (true, _) => Loss::None,
            (false, true) => Loss::Shown,
            (false, false) => Loss::New,
        }
    }

    /// The last one, if there were any since `told`, for who is told of all of them now.
    pub(crate) fn tell(&mut self, told: &mut u32) -> Result<()> {
        self.heard = self.count;
        self.whisper(told)
    }

    /// The same, where perhaps nobody listens.
    pub(crate) fn whisper(&self, told: &mut u32) -> Result<()> {
        let news = core::mem::replace(told, self.count) != self.count;
        self.errno.filter(|_| news).map_or(Ok(()), Err)
    }

    /// The same for a sync of everything.
    pub(crate) fn show(&mut self) -> Result<()> {
        let mut shown = self.shown;
        let told = self.whisper(&mut shown);
        self.shown = shown;
        told
    }

    /// The same for whoever renames the file, if no program has heard of it: none may be left that
    /// has it open. It takes nothing away from those that have.
    pub(crate) fn rename(&mut self) -> Result<()> {
        let mut renamed = self.renamed.max(self.heard);
        let told = self.whisper(&mut renamed);
        self.renamed = renamed;
        told
    }

    /// Whether a sync of everything has something to tell.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown == self.count
    }
}
