//! The question that gRPC servers know about their health: `grpc.health.v1.Health/Check` (the gRPC Health Checking Protocol).

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, TE};
use http::{HeaderValue, Method, Request, Version};

use crate::net::Stream;

/// Asks about a service; "" is the server as a whole.
pub(super) async fn ask(stream: Stream, authority: &str, tls: bool, service: &str) -> Result<(), String> {
    let (mut client, connection) = h2::client::handshake(stream).await.map_err(|error| error.to_string())?;
    let exchange = async {
        let scheme = if tls { "https" } else { "http" };
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("{scheme}://{authority}/grpc.health.v1.Health/Check"))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
            .header(TE, HeaderValue::from_static("trailers"))
            .header("user-agent", HeaderValue::from_static("ferrio-check"))
            .body(())
            .map_err(|error| error.to_string())?;
        let failed = |error: h2::Error| error.to_string();
        std::future::poll_fn(|cx| client.poll_ready(cx)).await.map_err(failed)?;
        let (response, mut body) = client.send_request(request, false).map_err(failed)?;
        body.send_data(question(service), true).map_err(failed)?;
        let (head, mut body) = response.await.map_err(failed)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(format!("status {} instead of a gRPC answer", head.status.as_u16()));
        }
        let mut answer = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(failed)?;
            let _ = body.flow_control().release_capacity(data.len());
            answer.extend_from_slice(&data);
            if answer.len() > LONGEST {
                return Err("the answer is too long".to_owned());
            }
        }
        let trailers = body.trailers().await.map_err(failed)?;
        outcome(&head.headers, trailers.as_ref(), &answer)
    };
    tokio::select! {
        outcome = exchange => outcome,
        ended = connection => Err(ended.err().map_or_else(|| "the connection ended".to_owned(), |error| error.to_string())),
    }
}

/// `HealthCheckRequest { string service = 1; }`, with the prefix of a message.
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend(message);
    framed.into()
}

fn outcome(head: &HeaderMap, trailers: Option<&HeaderMap>, answer: &[u8]) -> Result<(), String> {
    let status = trailers.and_then(|trailers| trailers.get("grpc-status")).or_else(|| head.get("grpc-status"));
    match status.map(HeaderValue::as_bytes) {
        Some(b"0") => {}
        Some(b"5") => return Err("the server does not know this service (NOT_FOUND)".to_owned()),
        Some(b"12") => return Err("the server has no health service (UNIMPLEMENTED); use check=tcp".to_owned()),
        Some(code) => return Err(format!("gRPC status {}", code.escape_ascii())),
        None => return Err("an answer without a gRPC status".to_owned()),
    }
    match serving(answer) {
        Some(1) => Ok(()),
        Some(0) => Err("UNKNOWN".to_owned()),
        Some(2) => Err("NOT_SERVING".to_owned()),
        Some(3) => Err("SERVICE_UNKNOWN".to_owned()),
        Some(other) => Err(format!("serving status {other}")),
        None => Err("an answer that cannot be read".to_owned()),
    }
}

/// `HealthCheckResponse { ServingStatus status = 1; }`: the last one counts, and other fields are skipped.
fn serving(mut framed: &[u8]) -> Option<u64> {
    if framed.try_get_u8().ok()? != 0 {
        return None;
    }
    let length = framed.try_get_u32().ok()? as usize;
    let mut message = framed.get(..length)?;
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => {
                let value = varint(&mut message)?;
                if tag >> 3 == 1 {
                    status = value;
                }
            }
            1 => message = message.get(8..)?,
            2 => {
                let length = varint(&mut message)?;
                message = message.get(usize::try_from(length).ok()?..)?;
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A few bytes are enough for it.
const LONGEST: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers() {
        assert_eq!(question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(question("a.B")[..], *b"\0\0\0\0\x05\x0a\x03a.B");
        let long = question(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        for (answer, want) in [
            (&b"\0\0\0\0\0"[..], Some(0)),
            (b"\0\0\0\0\x02\x08\x01", Some(1)),
            (b"\0\0\0\0\x02\x08\x02", Some(2)),
            // Fields that are not known.
            (b"\0\0\0\0\x07\x12\x01x\x18\x01\x08\x01", Some(1)),
            (b"\0\0\0\0\x02\x08", None),
            (b"\0\0\0\0\x03\x12\x7fx", None),
            (b"\x01\0\0\0\x02\x08\x01", None),
            (b"", None),
        ] {
            assert_eq!(serving(answer), want, "{answer:?}");
        }
    }
}
