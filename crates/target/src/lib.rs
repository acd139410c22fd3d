//! The server side of a gRPC target.
