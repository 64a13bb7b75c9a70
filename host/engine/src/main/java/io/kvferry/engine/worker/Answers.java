// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.WireReader;

import java.io.EOFException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/// What a worker process says: answers, for the thread that asked, and news in between. A second
/// answer that nobody asked for is not read, and so holds the worker up and nobody else.
///
/// Threading: [#listen] in a thread of its own, [#expect] in one other. Whoever waits is ended by
/// the end of the process.
final class Answers {
    private final Frames frames;
    private final Runnable news;
    private final EventSink events;
    private final BlockingQueue<Heard> heard = new ArrayBlockingQueue<>(2);

    private sealed interface Heard {
        record Answer(Frames.Frame frame) implements Heard {}

        record End(Exception cause) implements Heard {}
    }

    /// @param events takes the events of the worker's plugins
    Answers(Frames frames, Runnable news, EventSink events) {
        this.events = events;
        this.frames = frames;
        this.news = news;
    }

    /// Reads until the worker is gone, or says what cannot be understood.
    void listen() {
        try {
            hear();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void hear() throws InterruptedException {
        while (true) {
            Frames.Frame frame;
            try {
                frame = frames.receive();
            } catch (IOException | KvFerryException e) {
                heard.put(new Heard.End(e));
                return;
            }
            if (frame.kind() == Frames.NEWS) {
                news.run();
            } else if (frame.kind() == Frames.EVENT) {
                forward(frame);
            } else {
                heard.put(new Heard.Answer(frame));
            }
        }
    }

    /// Observing never fails data: what cannot be read is an incident.
    private void forward(Frames.Frame frame) {
        TraceEvent event;
        try {
            event = EventCodec.read(frame.reader());
        } catch (RuntimeException e) {
            event =
                    new TraceEvent.Incident(
                            "", "event-unreadable", "worker", Map.of("what", e.toString()));
        }
        events.emit(event);
    }

    /// Waits for the next answer, which has to be of this kind.
    WireReader expect(int kind) throws IOException, InterruptedException {
        return switch (heard.take()) {
            case Heard.Answer(var frame) -> Frames.expect(kind, frame);
            case Heard.End(var cause) -> {
                heard.put(new Heard.End(cause)); // for whoever asks next
                throw ended(cause);
            }
        };
    }

    private static IOException ended(Exception cause) {
        if (cause instanceof KvFerryException coded) {
            throw coded;
        }
        return cause instanceof IOException gone ? gone : new EOFException(cause.toString());
    }
}
