// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// The exchanges that a decoder has open on a connection that they share, see [ExchangeFrame]: an
/// asker for each.
///
/// Threading: frames and the end come on the connection's thread; answers from any.
final class SharedAskers {
    private static final Logger LOG = LoggerFactory.getLogger(SharedAskers.class);

    /// Open exchanges; more are refused.
    static final int MOST_OPEN = 1 << 14;

    private final String name;
    private final ZmtpConnection connection;
    private final String host;
    private final SideChannel.Requests requests;
    private final Map<Long, Asker> open = new ConcurrentHashMap<>();

    SharedAskers(
            String name, ZmtpConnection connection, String host, SideChannel.Requests requests) {
        this.name = name;
        this.connection = connection;
        this.host = host;
        this.requests = requests;
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL]; the connection is to be closed then
    void take(byte[] message) {
        var frame = ExchangeFrame.decode(message);
        switch (frame.kind()) {
            case ExchangeFrame.REQUEST -> request(frame);
            case ExchangeFrame.CANCEL -> {
                var asker = open.remove(frame.exchange());
                if (asker != null) { // else its last answer is on the way
                    SideChannel.guard(name, () -> requests.onGone(asker));
                }
            }
            default -> throw frame.unexpected();
        }
    }

    private void request(ExchangeFrame frame) {
        long number = frame.exchange();
        if (open.size() >= MOST_OPEN) {
            refuse(number);
            return;
        }
        var asker = new Asker(number);
        if (open.putIfAbsent(number, asker) != null) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "exchange " + number + " is open");
        }
        try {
            requests.onRequest(asker, frame.payload());
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "{}: callback failed", name, e);
            if (open.remove(number, asker)) {
                refuse(number);
            }
        }
    }

    private void refuse(long number) {
        connection.send(ExchangeFrame.encode(number, ExchangeFrame.REFUSED));
    }

    /// The connection is over.
    void gone() {
        for (var asker : List.copyOf(open.values())) {
            if (open.remove(asker.number, asker)) {
                SideChannel.guard(name, () -> requests.onGone(asker));
            }
        }
    }

    /// Whoever waits for the answers to one request.
    private final class Asker implements SideChannel.Asker {
        private final long number;

        Asker(long number) {
            this.number = number;
        }

        @Override
        public boolean answer(byte[] message) {
            return this == open.get(number) && send(ExchangeFrame.ANSWER, message);
        }

        @Override
        public boolean last(byte[] message) {
            return open.remove(number, this) && send(ExchangeFrame.LAST, message);
        }

        private boolean send(int kind, byte[] message) {
            return connection.send(ExchangeFrame.encode(number, kind, message));
        }

        @Override
        public String host() {
            return host;
        }
    }
}
