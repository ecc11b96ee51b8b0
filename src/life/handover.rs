//! A line to another process of ours, over which text goes and sockets with it (unix(7), SCM_RIGHTS).
//!
//! Descriptors stay close-on-exec on both sides: none of them reaches a process that was not meant to have it. The other
//! process finds its end as its standard input.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

/// One end. Blocks, for so long at most as [`Line::patient`] says.
#[derive(Debug)]
pub struct Line(OwnedFd);

impl Line {
    /// Our end, and what the other process gets as standard input.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that we were given. From now on nothing comes from standard input.
    pub fn of_stdin() -> io::Result<Self> {
        let line = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(Self(line))
    }

    /// How long one message may take; `None`: for ever.
    pub fn patient(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Send, limit)?;
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, limit)?;
        Ok(())
    }

    pub fn send(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor
            && !control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)))
        {
            return Err(io::Error::other("no room for a descriptor"));
        }
        sendmsg(&self.0, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// `None`: the other end is gone.
    pub fn receive(&self) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; LONGEST];
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if got.bytes == 0 {
            return Ok(None);
        }
        Ok(Some((String::from_utf8_lossy(&text[..got.bytes.min(LONGEST)]).into_owned(), descriptor)))
    }
}

/// Bytes of a message.
const LONGEST: usize = 512;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_and_sockets_arrive_in_order() {
        let (ours, theirs) = Line::pair().unwrap();
        let theirs = Line(theirs);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        ours.send("socket", Some(listener.as_fd())).unwrap();
        ours.send("end", None).unwrap();
        drop(listener);
        let (text, descriptor) = theirs.receive().unwrap().unwrap();
        assert_eq!(text, "socket");
        let descriptor = descriptor.unwrap();
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(std::net::TcpListener::from(descriptor).local_addr().unwrap(), addr);
        assert!(matches!(theirs.receive().unwrap(), Some((text, None)) if text == "end"));
        theirs.patient(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(theirs.receive().unwrap().is_none());
        assert!(theirs.send("x", None).is_err());
    }
}
