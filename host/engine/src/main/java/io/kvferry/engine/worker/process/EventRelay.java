// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.WireWriter;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

/// Sends the events of a worker process's plugins to the engine. Emitting never waits: what the
/// pipe does not take in time is dropped, and the number of dropped events is sent as one.
///
/// Threading: [#emit] from any thread.
final class EventRelay implements EventSink {
    private static final int MOST_WAITING = 1024;

    private final WorkerPipe frames;
    private final BlockingQueue<TraceEvent> waiting = new ArrayBlockingQueue<>(MOST_WAITING);
    private final AtomicLong dropped = new AtomicLong();
    private final Thread sender =
            Thread.ofPlatform().daemon().name("kvferry-worker-events").unstarted(this::send);

    EventRelay(WorkerPipe frames) {
        this.frames = frames;
    }

    void start() {
        sender.start();
    }

    /// The worker ends; what has not been sent is lost with it.
    void stop() {
        sender.interrupt();
    }

    @Override
    public void emit(TraceEvent event) {
        if (!waiting.offer(event)) {
            dropped.incrementAndGet();
        }
    }

    private void send() {
        var out = new WireWriter();
        try {
            while (true) {
                send(out, waiting.take());
                long lost = dropped.getAndSet(0);
                if (lost > 0) {
                    var details = Map.of("count", Long.toString(lost));
                    send(out, new TraceEvent.Incident("", "events-dropped", "worker", details));
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (IOException e) {
            // The engine is gone; the step thread finds out by itself.
        }
    }

    private void send(WireWriter out, TraceEvent event) throws IOException {
        EventCodec.write(out.reset(), event);
        frames.send(WorkerPipe.EVENT, out);
    }
}
