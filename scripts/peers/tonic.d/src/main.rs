//! A server and a client of tonic, for calls of all four kinds: `server` prints its port and serves, `client URL` tries them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{ClientStreamingService, NamedService, ServerStreamingService, StreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};

/// Messages are bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

#[derive(Clone)]
struct Demo;

impl NamedService for Demo {
    const NAME: &'static str = "demo.Tonic";
}

impl UnaryService<Bytes> for Demo {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move {
            match &request.get_ref()[..] {
                b"fail" => return Err(Status::new(Code::FailedPrecondition, "not yet: 100%")),
                b"hang" => std::future::pending().await,
                _ => {}
            }
            let mut response = Response::new(request.get_ref().clone());
            if let Some(asked) = request.metadata().get("x-ask") {
                response.metadata_mut().insert("x-head", asked.clone());
            }
            Ok(response)
        })
    }
}

impl ServerStreamingService<Bytes> for Demo {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<Response<Messages>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let piece = request.into_inner();
        Box::pin(async move {
            Ok(Response::new(Box::pin(tokio_stream::iter((0..100).map(move |_| Ok(piece.clone())))) as Messages))
        })
    }
}

impl ClientStreamingService<Bytes> for Demo {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(async move {
            let mut all = Vec::new();
            let mut messages = request.into_inner();
            while let Some(message) = messages.next().await {
                all.extend_from_slice(&message?);
            }
            Ok(Response::new(all.into()))
        })
    }
}

impl StreamingService<Bytes> for Demo {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<Response<Messages>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(Box::pin(request.into_inner()) as Messages)) })
    }
}

impl Service<http::Request<Body>> for Demo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let gzip = CompressionEncoding::Gzip;
            let mut grpc = tonic::server::Grpc::new(Raw).accept_compressed(gzip).send_compressed(gzip);
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            Ok(match method.as_str() {
                "Unary" => grpc.unary(Demo, request).await,
                "Down" => grpc.server_streaming(Demo, request).await,
                "Up" => grpc.client_streaming(Demo, request).await,
                "Both" => grpc.streaming(Demo, request).await,
                _ => Status::unimplemented(method).into_http(),
            })
        })
    }
}

fn path(method: &str) -> http::uri::PathAndQuery {
    format!("/demo.Tonic/{method}").parse().expect("a path")
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) {
    assert_eq!(got, want, "{what}");
    println!("PASS {what}");
}

async fn client(url: String, gzip: bool) -> Result<(), Box<dyn std::error::Error>> {
    let channel: Channel = Endpoint::new(url)?.connect().await?;
    let mut grpc = Grpc::new(channel);
    if gzip {
        grpc = grpc.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
    }
    let word = Bytes::from_static(b"word");

    let mut request = Request::new(word.clone());
    request.metadata_mut().insert("x-ask", "42".parse()?);
    grpc.ready().await?;
    let response = grpc.unary(request, path("Unary"), Raw).await?;
    expect(
        "unary: metadata",
        response.metadata().get("x-head").map(|value| value.to_str().unwrap().to_owned()),
        Some("42".to_owned()),
    );
    expect("unary: message", response.into_inner(), word.clone());

    let large = Bytes::from(vec![b'x'; 3_000_000]);
    grpc.ready().await?;
    let echoed = grpc.unary(Request::new(large.clone()), path("Unary"), Raw).await?.into_inner();
    expect("unary: three megabytes", echoed == large, true);

    grpc.ready().await?;
    let down = grpc.server_streaming(Request::new(word.clone()), path("Down"), Raw).await?.into_inner();
    expect("server streaming", down.collect::<Result<Vec<Bytes>, Status>>().await?.len(), 100);

    grpc.ready().await?;
    let pieces = tokio_stream::iter((0..100).map(|_| Bytes::from_static(b"ab")));
    let up = grpc.client_streaming(Request::new(pieces), path("Up"), Raw).await?.into_inner();
    expect("client streaming", up.len(), 200);

    // One at a time: each answer comes before the next question.
    grpc.ready().await?;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let questions = ReceiverStream::new(receiver);
    sender.send(word.clone()).await?;
    let mut both = grpc.streaming(Request::new(questions), path("Both"), Raw).await?.into_inner();
    for _ in 0..20 {
        assert_eq!(both.message().await?, Some(word.clone()));
        sender.send(word.clone()).await?;
    }
    drop(sender);
    expect("both ways", both.collect::<Result<Vec<Bytes>, Status>>().await?.len(), 1);

    grpc.ready().await?;
    let failed = grpc.unary::<Bytes, Bytes, Raw>(Request::new("fail".into()), path("Unary"), Raw).await.unwrap_err();
    expect("a status with a message", (failed.code(), failed.message()), (Code::FailedPrecondition, "not yet: 100%"));

    let mut request = Request::new(Bytes::from_static(b"hang"));
    request.set_timeout(Duration::from_millis(300));
    grpc.ready().await?;
    let failed = grpc.unary::<Bytes, Bytes, Raw>(request, path("Unary"), Raw).await.unwrap_err();
    expect("a deadline", matches!(failed.code(), Code::DeadlineExceeded | Code::Cancelled), true);

    grpc.ready().await?;
    let unknown = http::uri::PathAndQuery::from_static("/nobody.Knows/It");
    let failed = grpc.unary::<Bytes, Bytes, Raw>(Request::new(word), unknown, Raw).await.unwrap_err();
    expect("no route", failed.code(), Code::NotFound);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("server"), None) => {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            println!("{}", listener.local_addr()?.port());
            Server::builder().add_service(Demo).serve_with_incoming(TcpListenerStream::new(listener)).await?;
            Ok(())
        }
        (Some("client"), Some(url)) => client(url, arguments.next().is_some()).await,
        _ => Err("server, or client URL [gzip]".into()),
    }
}
