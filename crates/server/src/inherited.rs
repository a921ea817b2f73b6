//! Listening sockets that one process passes to another over a Unix socket (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, getsockname, recvmsg,
    sendmsg, sockopt,
};

/// Descriptors of one message (`SCM_MAX_FD`, unix(7)).
const DESCRIPTORS_MAX: usize = 253;

/// Listening sockets of another process that this one has not taken yet. Nothing but the sockets says what they are.
#[derive(Debug, Default)]
pub struct Inherited(Vec<OwnedFd>);

impl Inherited {
    /// Takes the sockets of this kind at this address.
    pub fn take(&mut self, kind: SocketType, address: SocketAddr) -> Vec<OwnedFd> {
        let is_it =
            |socket: &mut OwnedFd| kind_of(socket) == Some(kind) && at(socket) == Some(address);
        self.0.extract_if(.., is_it).collect()
    }

    /// Takes the Unix socket.
    pub fn take_unix(&mut self) -> Option<UnixListener> {
        let is_it =
            |socket: &mut OwnedFd| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
        self.0.extract_if(.., is_it).next().map(UnixListener::from)
    }

    /// The address of each remaining socket, and whether it is one of UDP.
    pub fn addresses(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        let shown = |socket| Some((at(socket)?, kind_of(socket)? == SocketType::DGRAM));
        self.0.iter().filter_map(shown)
    }
}

fn kind_of(socket: &OwnedFd) -> Option<SocketType> {
    sockopt::socket_type(socket).ok()
}

fn at(socket: &OwnedFd) -> Option<SocketAddr> {
    getsockname(socket).ok()?.try_into().ok()
}

/// Sends copies of the sockets, with a space for each 253 of them: they can precede a line of JSON.
///
/// # Errors
///
/// An error of the kernel, also if the sockets do not fit at once.
pub fn send(to: impl AsFd, sockets: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    for part in sockets.chunks(DESCRIPTORS_MAX) {
        let part: Vec<_> = part.iter().map(AsFd::as_fd).collect();
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&part));
        sendmsg(
            &to,
            &[IoSlice::new(b" ")],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
    }
    Ok(())
}

/// Receives a line of at most about `len_max` octets, and the sockets that come with it.
///
/// # Errors
///
/// An error of the kernel; the stream ends; or this process has too few descriptors for the sockets.
pub fn receive(from: impl AsFd, len_max: usize) -> io::Result<(Vec<u8>, Inherited)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut chunk = [0; 1024];
    let (mut line, mut sockets) = (Vec::new(), Vec::new());
    while line.last() != Some(&b'\n') && line.len() < len_max {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut chunk)];
        let received = recvmsg(&from, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                sockets.extend(some);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other(
                "too many open files for its sockets: raise LimitNOFILE= of the unit, or ulimit -n",
            ));
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&chunk[..received.bytes]);
    }
    Ok((line, Inherited(sockets)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_arrive_before_their_line_and_are_found_by_kind_and_address() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let udp: Vec<_> = (0..DESCRIPTORS_MAX)
            .map(|_| OwnedFd::from(UdpSocket::bind("[::1]:0").unwrap()))
            .collect();
        let first = at(&udp[0]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let mut all = udp;
        all.extend([tcp.into(), unix.into()]);

        let (mut here, there) = UnixStream::pair().unwrap();
        send(&here, &all).unwrap();
        here.write_all(b"{}\n").unwrap();
        let (line, mut inherited) = receive(&there, 100).unwrap();
        assert_eq!(line, b"  {}\n");
        assert_eq!(inherited.take(SocketType::DGRAM, address).len(), 0);
        assert_eq!(inherited.take(SocketType::STREAM, address).len(), 1);
        assert_eq!(inherited.take(SocketType::STREAM, address).len(), 0);
        assert!(inherited.take_unix().is_some());
        assert!(inherited.take_unix().is_none());
        assert_eq!(inherited.addresses().count(), DESCRIPTORS_MAX);
        assert_eq!(inherited.take(SocketType::DGRAM, first).len(), 1);
        assert!(!inherited.addresses().any(|it| it == (first, true)));

        drop(here);
        let ended = receive(&there, 100).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
