//! Transfers whole: a call may move fewer bytes than it was asked for.

use std::io;

use crate::io::FileInterface;

/// Calls until so many bytes are moved; a call that moves none is that error.
#[inline]
fn whole(
    len: usize,
    none: io::ErrorKind,
    mut part: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        match part(at) {
            Ok(0) => return Err(none.into()),
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of a buffer.
#[inline]
pub(super) fn write_at<I: FileInterface>(
    io: &I,
    file: &I::File,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    whole(bytes.len(), io::ErrorKind::WriteZero, |at| {
        io.write_at(file, bytes.get(at..).unwrap_or_default(), offset + at as u64)
    })
}

/// Fills all of a buffer.
#[inline]
pub(super) fn read_at<I: FileInterface>(
    io: &I,
    file: &I::File,
    bytes: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    whole(bytes.len(), io::ErrorKind::UnexpectedEof, |at| {
        io.read_at(file, bytes.get_mut(at..).unwrap_or_default(), offset + at as u64)
    })
}

/// Writes all of a buffer where the file is.
#[inline]
pub(super) fn write_next<I: FileInterface>(io: &I, file: &I::File, bytes: &[u8]) -> io::Result<()> {
    whole(bytes.len(), io::ErrorKind::WriteZero, |at| {
        io.write_next(file, bytes.get(at..).unwrap_or_default())
    })
}

/// Fills all of a buffer from where the file is.
#[inline]
pub(super) fn read_next<I: FileInterface>(
    io: &I,
    file: &I::File,
    bytes: &mut [u8],
) -> io::Result<()> {
    whole(bytes.len(), io::ErrorKind::UnexpectedEof, |at| {
        io.read_next(file, bytes.get_mut(at..).unwrap_or_default())
    })
}

/// Writes a transfer by the calls that the original tools make for it.
#[inline]
pub(super) fn put<I: FileInterface>(
    io: &I,
    file: &I::File,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    if io.seeks() {
        io.seek(file, offset)?;
        write_next(io, file, bytes)
    } else {
        write_at(io, file, bytes, offset)
    }
}

/// Reads one.
#[inline]
pub(super) fn get<I: FileInterface>(
    io: &I,
    file: &I::File,
    bytes: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    if io.seeks() {
        io.seek(file, offset)?;
        read_next(io, file, bytes)
    } else {
        read_at(io, file, bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_put_together() {
        let mut parts = [Ok(3), Err(io::ErrorKind::Interrupted.into()), Ok(5)].into_iter();
        let mut asked = Vec::new();
        whole(8, io::ErrorKind::WriteZero, |at| {
            asked.push(at);
            parts.next().unwrap()
        })
        .unwrap();
        assert_eq!(asked, [0, 3, 3]);
        let end = whole(8, io::ErrorKind::UnexpectedEof, |_| Ok(0)).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let broken = whole(8, io::ErrorKind::WriteZero, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
