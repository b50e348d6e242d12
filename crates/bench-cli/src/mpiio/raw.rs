//! The calls of MPI-IO, for which the binding has no safe form. The only file of this room with
//! `unsafe`.
#![allow(unsafe_code, reason = "the binding has MPI-IO as C functions only")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;

use mpi::ffi;

/// Bytes of a text of MPI, with its end; more than any implementation's limit.
const TEXT_MAX: usize = 4096;
const _: () = assert!(
    TEXT_MAX > ffi::MPI_MAX_ERROR_STRING as usize
        && TEXT_MAX > ffi::MPI_MAX_INFO_KEY as usize
        && TEXT_MAX > ffi::MPI_MAX_INFO_VAL as usize
);
/// The classes of errors that mean the same as the system's.
const KINDS: [(u32, ErrorKind); 7] = [
    (ffi::MPI_ERR_NO_SUCH_FILE, ErrorKind::NotFound),
    (ffi::MPI_ERR_FILE_EXISTS, ErrorKind::AlreadyExists),
    (ffi::MPI_ERR_ACCESS, ErrorKind::PermissionDenied),
    (ffi::MPI_ERR_NO_SPACE, ErrorKind::StorageFull),
    (ffi::MPI_ERR_QUOTA, ErrorKind::QuotaExceeded),
    (ffi::MPI_ERR_READ_ONLY, ErrorKind::ReadOnlyFilesystem),
    (ffi::MPI_ERR_BAD_FILE, ErrorKind::InvalidInput),
];

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) write: bool,
    pub(super) create: bool,
    /// Nobody else has it open meanwhile.
    pub(super) unique: bool,
    /// By this rank, rather than by all together.
    pub(super) alone: bool,
}

/// A rank's part of a file: of each segment some transfers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Bytes of a transfer.
    pub(super) transfer: c_int,
    /// Transfers that are the rank's.
    pub(super) per_block: c_int,
    /// Transfers of a segment.
    pub(super) per_segment: c_int,
    /// The first that is the rank's.
    pub(super) first: c_int,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Raw {
    handle: ffi::MPI_File,
    alone: bool,
    open: bool,
}

/// What a call has said.
fn checked(code: c_int) -> io::Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(failed(code)) }
}

/// An error in the words of MPI.
#[cold]
fn failed(code: c_int) -> io::Error {
    let mut class = 0;
    // SAFETY: it writes one int, which lives here; any code is allowed.
    unsafe { ffi::MPI_Error_class(code, &raw mut class) };
    let kind = KINDS.iter().find(|(known, _)| c_int::try_from(*known) == Ok(class));
    let said = text(|buffer| {
        let mut len = 0;
        // SAFETY: it writes a text of at most MPI_MAX_ERROR_STRING bytes, which the buffer holds
        // with room to spare, and one int.
        unsafe { ffi::MPI_Error_string(code, buffer, &raw mut len) };
    });
    let said = said.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    io::Error::new(kind.map_or(ErrorKind::Other, |(_, kind)| *kind), said)
}

/// What a call writes into a buffer of [`TEXT_MAX`] bytes.
fn text(fill: impl FnOnce(*mut c_char)) -> String {
    let mut buffer = [0_u8; TEXT_MAX];
    fill(buffer.as_mut_ptr().cast());
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

/// The version of the standard that the library has.
pub(super) fn version() -> (c_int, c_int) {
    let (mut version, mut subversion) = (0, 0);
    // SAFETY: it writes two ints, which live here.
    unsafe { ffi::MPI_Get_version(&raw mut version, &raw mut subversion) };
    (version, subversion)
}

/// Removes a file.
pub(super) fn delete(name: &CStr) -> io::Result<()> {
    // SAFETY: the name ends with a zero and outlives the call; no hints are given.
    checked(unsafe { ffi::MPI_File_delete(name.as_ptr(), ffi::RSMPI_INFO_NULL) })
}

/// Hints for MPI.
struct Info(ffi::MPI_Info);

impl Info {
    fn new(hints: &[(String, String)]) -> io::Result<Self> {
        // SAFETY: a constant of the library.
        let mut info = Self(unsafe { ffi::RSMPI_INFO_NULL });
        if hints.is_empty() {
            return Ok(info);
        }
        // SAFETY: it writes a handle, which lives here.
        checked(unsafe { ffi::MPI_Info_create(&raw mut info.0) })?;
        for (name, value) in hints {
            let bad = |_| io::Error::from(ErrorKind::InvalidInput);
            let key = CString::new(name.as_str()).map_err(bad)?;
            let value = CString::new(value.as_str()).map_err(bad)?;
            // SAFETY: the info was created; the texts end with zeros and are copied.
            checked(unsafe { ffi::MPI_Info_set(info.0, key.as_ptr(), value.as_ptr()) })
                .map_err(|error| io::Error::other(format!("hint {name}: {error}")))?;
        }
        Ok(info)
    }

    /// All of them.
    fn pairs(&self) -> io::Result<Vec<(String, String)>> {
        let mut count = 0;
        // SAFETY: the info is one that the library has made; an int is written.
        checked(unsafe { ffi::MPI_Info_get_nkeys(self.0, &raw mut count) })?;
        let pair = |number| {
            let name = text(|buffer| {
                // SAFETY: there are more keys than `number`; a key has at most MPI_MAX_INFO_KEY
                // bytes, which the buffer holds.
                unsafe { ffi::MPI_Info_get_nthkey(self.0, number, buffer) };
            });
            let key = CString::new(name.as_str()).unwrap_or_default();
            let value = text(|buffer| {
                let (len, mut found) = (TEXT_MAX as c_int - 1, 0);
                // SAFETY: the key ends with a zero; at most `len` bytes and a zero are written.
                unsafe { ffi::MPI_Info_get(self.0, key.as_ptr(), len, buffer, &raw mut found) };
            });
            (name, value)
        };
        Ok((0..count).map(pair).collect())
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: a constant to compare with; else the info is the library's and freed once.
        unsafe {
            if self.0 != ffi::RSMPI_INFO_NULL {
                ffi::MPI_Info_free(&raw mut self.0);
            }
        }
    }
}

/// A type of data that is freed when it goes; the library keeps what still uses it.
struct Datatype(ffi::MPI_Datatype);

impl Datatype {
    /// Makes one with a call that writes its handle.
    fn made(make: impl FnOnce(*mut ffi::MPI_Datatype) -> c_int) -> io::Result<Self> {
        // SAFETY: a constant of the library.
        let mut handle = unsafe { ffi::RSMPI_DATATYPE_NULL };
        checked(make(&raw mut handle))?;
        let mut made = Self(handle);
        // SAFETY: the type was just made.
        checked(unsafe { ffi::MPI_Type_commit(&raw mut made.0) })?;
        Ok(made)
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        // SAFETY: it was made by us and is freed once.
        unsafe { ffi::MPI_Type_free(&raw mut self.0) };
    }
}

impl Raw {
    /// Opens a file; unless [`Mode::alone`], all ranks do.
    pub(super) fn open(name: &CStr, mode: Mode, hints: &[(String, String)]) -> io::Result<Self> {
        let info = Info::new(hints)?;
        let flags = [
            (true, if mode.write { ffi::MPI_MODE_RDWR } else { ffi::MPI_MODE_RDONLY }),
            (mode.create, ffi::MPI_MODE_CREATE),
            (mode.unique, ffi::MPI_MODE_UNIQUE_OPEN),
        ];
        let flags = flags.into_iter().filter(|(wanted, _)| *wanted);
        let flags = flags.fold(0, |all, (_, flag)| all | flag as c_int);
        // SAFETY: constants of the library; the name ends with a zero; a handle is written, which
        // lives here and is used only if the call has worked.
        let (handle, code) = unsafe {
            let comm = if mode.alone { ffi::RSMPI_COMM_SELF } else { ffi::RSMPI_COMM_WORLD };
            let mut handle = ffi::RSMPI_FILE_NULL;
            let code = ffi::MPI_File_open(comm, name.as_ptr(), flags, info.0, &raw mut handle);
            (handle, code)
        };
        checked(code)?;
        Ok(Self { handle, alone: mode.alone, open: true })
    }

    /// The hints that are used.
    pub(super) fn hints(&self) -> io::Result<Vec<(String, String)>> {
        // SAFETY: a constant of the library.
        let mut info = Info(unsafe { ffi::RSMPI_INFO_NULL });
        // SAFETY: the file is open; a new info is written, which is freed with `info`.
        checked(unsafe { ffi::MPI_File_get_info(self.handle, &raw mut info.0) })?;
        info.pairs()
    }

    /// Gives the file room; all ranks that have opened it call this.
    pub(super) fn preallocate(&self, bytes: i64) -> io::Result<()> {
        // SAFETY: the file is open.
        checked(unsafe { ffi::MPI_File_preallocate(self.handle, bytes) })
    }

    /// Shows the rank its part alone, counted in transfers; all ranks that have opened it call
    /// this.
    pub(super) fn set_view(&self, parts: &Parts) -> io::Result<()> {
        let transfer = Datatype::made(|handle| {
            // SAFETY: a type of the library's; a handle is written.
            unsafe { ffi::MPI_Type_contiguous(parts.transfer, ffi::RSMPI_UINT8_T, handle) }
        })?;
        let block = Datatype::made(|handle| {
            // SAFETY: arrays of one number each, as said; they are read during the call only.
            unsafe {
                ffi::MPI_Type_create_subarray(
                    1,
                    &raw const parts.per_segment,
                    &raw const parts.per_block,
                    &raw const parts.first,
                    ffi::MPI_ORDER_C as c_int,
                    transfer.0,
                    handle,
                )
            }
        })?;
        // SAFETY: the file is open, the types are committed, the name ends with a zero, no hints
        // are given.
        checked(unsafe {
            let native = c"native".as_ptr();
            let none = ffi::RSMPI_INFO_NULL;
            ffi::MPI_File_set_view(self.handle, 0, transfer.0, block.0, native, none)
        })
    }

    /// Writes bytes; how many. If `together`, all ranks that have opened the file call this.
    pub(super) fn write_at(&self, offset: i64, bytes: &[u8], together: bool) -> io::Result<usize> {
        let call = if together { ffi::MPI_File_write_at_all } else { ffi::MPI_File_write_at };
        let (start, count) = (bytes.as_ptr().cast(), count(bytes.len())?);
        moved(|status| {
            // SAFETY: the file is open; so many bytes are readable during the call; a status is
            // written.
            unsafe { call(self.handle, offset, start, count, ffi::RSMPI_UINT8_T, status) }
        })
    }

    /// Reads bytes; how many. If `together`, all ranks that have opened the file call this.
    pub(super) fn read_at(
        &self,
        offset: i64,
        bytes: &mut [u8],
        together: bool,
    ) -> io::Result<usize> {
        let call = if together { ffi::MPI_File_read_at_all } else { ffi::MPI_File_read_at };
        let (start, count) = (bytes.as_mut_ptr().cast(), count(bytes.len())?);
        moved(|status| {
            // SAFETY: the file is open; so many bytes are writable during the call, and nobody
            // else's; a status is written.
            unsafe { call(self.handle, offset, start, count, ffi::RSMPI_UINT8_T, status) }
        })
    }

    /// Makes data durable; all ranks that have opened the file call this.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the file is open.
        checked(unsafe { ffi::MPI_File_sync(self.handle) })
    }

    /// Closes it; all ranks that have opened it call this.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> io::Result<()> {
        self.open = false;
        // SAFETY: the file was open, and nothing uses the handle after this.
        checked(unsafe { ffi::MPI_File_close(&raw mut self.handle) })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A file that others have open, too, would be closed together with them, who may never
        // do so: this is a failure, and MPI_Abort follows.
        if self.open && self.alone {
            // What went wrong before is what will be said.
            let _ = self.shut();
        }
    }
}

/// A length as MPI counts it.
fn count(len: usize) -> io::Result<c_int> {
    c_int::try_from(len).map_err(|_| ErrorKind::InvalidInput.into())
}

/// How many bytes a call has moved, by its status.
fn moved(call: impl FnOnce(*mut ffi::MPI_Status) -> c_int) -> io::Result<usize> {
    let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
    checked(call(status.as_mut_ptr()))?;
    let mut count = 0;
    // SAFETY: the status was written by a call that has worked, and before it was zeros, which
    // are valid numbers; an int is written.
    checked(unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut count) })?;
    usize::try_from(count).map_err(|_| io::Error::other("MPI does not say how much it has moved"))
}
