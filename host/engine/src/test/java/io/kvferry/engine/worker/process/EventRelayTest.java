// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PipedInputStream;
import java.io.PipedOutputStream;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

class EventRelayTest {
    private static final int WAITING = 1024;

    /// Blocks whoever writes until the test opens it.
    private static final class Gate extends OutputStream {
        private final OutputStream behind;
        final CountDownLatch reached = new CountDownLatch(1);
        final CountDownLatch open = new CountDownLatch(1);

        Gate(OutputStream behind) {
            this.behind = behind;
        }

        @Override
        public void write(int value) throws IOException {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public void write(byte[] source, int from, int length) throws IOException {
            reached.countDown();
            try {
                if (!open.await(40, TimeUnit.SECONDS)) {
                    throw new IOException("the test did not open the gate");
                }
            } catch (InterruptedException e) {
                throw new IOException(e);
            }
            behind.write(source, from, length);
        }
    }

    private static TraceEvent event(int number) {
        return new TraceEvent.Incident(
                "", "numbered", "test", Map.of("number", Integer.toString(number)));
    }

    /// The emitting thread never waits, and the engine learns how many events it missed.
    @Test
    void dropsWhatIsBeyondItsBoundAndSaysHowManyThatWere() throws Exception {
        var read = new PipedInputStream(1 << 20);
        var gate = new Gate(new PipedOutputStream(read));
        var relay = new EventRelay(new WorkerPipe(InputStream.nullInputStream(), gate));
        relay.start();
        try {
            relay.emit(event(0));
            assertThat(gate.reached.await(40, TimeUnit.SECONDS)).isTrue();
            for (int i = 1; i <= WAITING + 100; i++) {
                relay.emit(event(i));
            }
            gate.open.countDown();

            var pipe = new WorkerPipe(read, OutputStream.nullOutputStream());
            assertThat(next(pipe)).isEqualTo(event(0));
            assertThat(next(pipe))
                    .isEqualTo(
                            new TraceEvent.Incident(
                                    "", "events-dropped", "worker", Map.of("count", "100")));
            for (int i = 1; i <= WAITING; i++) {
                assertThat(next(pipe)).isEqualTo(event(i));
            }
            relay.emit(event(-1));
            assertThat(next(pipe)).as("nothing more was dropped").isEqualTo(event(-1));
        } finally {
            relay.stop();
        }
    }

    private static TraceEvent next(WorkerPipe pipe) throws IOException {
        return EventCodec.read(pipe.expect(WorkerPipe.EVENT));
    }
}
