//! The SHA-256 of what goes through, by which an archive file is recognised.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

pub(super) struct Digesting<F> {
    file: F,
    hash: Sha256,
    bytes: u64,
}

impl<F> Digesting<F> {
    pub(super) fn new(file: F) -> Self {
        Self {
            file,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    /// How much went through.
    pub(super) fn length(&self) -> u64 {
        self.bytes
    }

    pub(super) fn sha256(self) -> [u8; 32] {
        self.hash.finalize().into()
    }

    fn pass(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
    }
}

impl<F: Read> Read for Digesting<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.pass(&buffer[..read]);
        Ok(read)
    }
}

impl<F: Write> Write for Digesting<F> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let written = self.file.write(piece)?;
        self.pass(&piece[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
