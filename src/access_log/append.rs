//! Appending lines to a log so that none of them is ever mixed with another.

use std::io::{self, Write};

/// A place that lines are appended to.
pub struct Append<W> {
    out: W,
    /// The last write stopped within a line, which the next one has to end.
    cut: bool,
}

impl<W: Write> Append<W> {
    pub fn new(out: W) -> Self {
        Self { out, cut: false }
    }

    /// Writes lines of which the ends are given, each behind its line break. Gives how many of them are not whole there, and
    /// why.
    pub fn write(&mut self, lines: &[u8], ends: &[usize]) -> (u64, Option<io::Error>) {
        let (written, error) = self.put(lines);
        let whole = ends.partition_point(|end| *end <= written);
        let boundary = whole.checked_sub(1).map_or(0, |last| ends[last]);
        self.cut |= written > boundary;
        ((ends.len() - whole) as u64, error)
    }

    pub fn flush(&mut self) {
        let _ = self.out.flush();
    }

    fn put(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        if self.cut {
            match self.some(b"\n") {
                Ok(_) => self.cut = false,
                Err(error) => return (0, Some(error)),
            }
        }
        let mut written = 0;
        while written < lines.len() {
            match self.some(&lines[written..]) {
                Ok(length) => written += length,
                Err(error) => return (written, Some(error)),
            }
        }
        (written, self.out.flush().err())
    }

    /// One write; never nothing.
    fn some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    #[derive(Default)]
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A few at a time, as a pipe may take them.
            let length = bytes.len().min(self.room).min(3);
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= length;
            self.bytes.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_whole_or_ends_before_the_next_one() {
        for (room, want, lost) in [
            (0, "four\n", 3),
            (1, "o\nfour\n", 3),
            (4, "one\nfour\n", 2),
            (6, "one\ntw\nfour\n", 2),
            (8, "one\ntwo\nfour\n", 1),
            (99, "one\ntwo\nthree\nfour\n", 0),
        ] {
            let mut disk = Disk { room, ..Disk::default() };
            let mut cut = false;
            for (lines, ends, more) in [("one\ntwo\nthree\n", &[4, 8, 14][..], 0), ("four\n", &[5], 99)] {
                disk.room += more;
                let mut log = Append { out: &mut disk, cut };
                let (missing, error) = log.write(lines.as_bytes(), ends);
                cut = log.cut;
                assert_eq!(missing, if more == 0 { lost } else { 0 }, "{room}");
                assert_eq!(error.is_some(), missing > 0, "{room}");
            }
            assert_eq!(String::from_utf8_lossy(&disk.bytes), want, "{room}");
        }
    }
}
