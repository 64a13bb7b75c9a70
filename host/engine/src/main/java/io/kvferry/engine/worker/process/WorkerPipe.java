// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.concurrent.locks.ReentrantLock;

/// Length-prefixed frames over a pair of byte streams: 4 bytes of length (big-endian), 1 byte of
/// kind, the body.
///
/// Threading: one thread receives; any may send.
final class WorkerPipe {
    /// Of a frame, before its body.
    static final int HEADER_BYTES = 5;

    static final int SETUP = 1;
    static final int READY = 2;
    static final int STEP = 3;
    static final int RESULT = 4;
    static final int CLOSE = 5;
    static final int FAILED = 6;

    /// From a worker, between steps: a report is due.
    static final int NEWS = 7;

    /// From a worker, at any time: an event of a plugin.
    static final int EVENT = 8;

    /// A prompt of a million tokens is 4 MiB; this leaves room for item contents.
    private static final int MOST_BYTES = 1 << 28;

    private final ReentrantLock sending = new ReentrantLock();
    private final DataInputStream in;
    private final OutputStream out;

    WorkerPipe(InputStream in, OutputStream out) {
        this.in = new DataInputStream(in);
        this.out = out;
    }

    record Message(int kind, byte[] body) {
        WireReader reader() {
            return new WireReader(body);
        }
    }

    /// The writer may be used again when this returns.
    void send(int kind, WireWriter body) throws IOException {
        int length = body.size() + 1;
        if (length > MOST_BYTES) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "a worker frame of " + length + " bytes; at most " + MOST_BYTES);
        }
        sending.lock();
        try {
            out.write(
                    new byte[] {
                        (byte) (length >>> 24),
                        (byte) (length >>> 16),
                        (byte) (length >>> 8),
                        (byte) length,
                        (byte) kind
                    });
            body.writeTo(out);
            out.flush();
        } finally {
            sending.unlock();
        }
    }

    /// @throws EOFException when the other side is gone
    Message receive() throws IOException {
        int length = in.readInt();
        if (length < 1 || length > MOST_BYTES) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "a worker frame of " + length + " bytes");
        }
        int kind = in.readUnsignedByte();
        var body = in.readNBytes(length - 1);
        if (body.length != length - 1) {
            throw new EOFException("the other side ended within a frame");
        }
        return new Message(kind, body);
    }

    /// The next frame, which has to be of this kind.
    WireReader expect(int kind) throws IOException {
        return expect(kind, receive());
    }

    /// The content of a frame, which has to be of this kind; FAILED is turned back into the
    /// exception.
    static WireReader expect(int kind, Message frame) {
        if (frame.kind == FAILED) {
            var in = frame.reader();
            var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
            throw new KvFerryException(code, in.string());
        }
        if (frame.kind != kind) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "expected worker frame " + kind + ", got " + frame.kind);
        }
        return frame.reader();
    }
}
