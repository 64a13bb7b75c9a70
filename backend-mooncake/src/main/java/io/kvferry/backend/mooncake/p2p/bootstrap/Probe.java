// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;

/// Probes the side channel of a worker: the port must accept the connection and send the ZMTP
/// signature, as every implementation does immediately. A port that accepts and sends nothing does
/// not count.
final class Probe {
    private static final Logger LOG = LoggerFactory.getLogger(Probe.class);

    /// Addresses that are looked at together.
    static final int TOGETHER = 64;

    private static final int CONNECT_MILLIS = 500;
    static final Duration ANSWER = Duration.ofSeconds(2);
    private static final byte[] SIGNATURE = {(byte) 0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F};

    private Probe() {}

    /// Those of some `tcp://host:port` addresses where a side channel answers.
    static Set<String> answering(Collection<String> addresses) {
        return answering(addresses, ANSWER);
    }

    /// @param limit of an answer
    static Set<String> answering(Collection<String> addresses, Duration limit) {
        var answering = new HashSet<String>();
        var left = List.copyOf(new HashSet<>(addresses));
        for (int from = 0; from < left.size(); from += TOGETHER) {
            answering.addAll(
                    together(left.subList(from, Math.min(from + TOGETHER, left.size())), limit));
        }
        return answering;
    }

    private static Set<String> together(List<String> addresses, Duration limit) {
        var answering = new HashSet<String>();
        try (var threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("mooncake-probe-", 0).factory())) {
            var probes = new ArrayList<Callable<Boolean>>();
            addresses.forEach(address -> probes.add(() -> answers(address, limit)));
            var results = threads.invokeAll(probes);
            for (int i = 0; i < results.size(); i++) {
                if (results.get(i).get()) {
                    answering.add(addresses.get(i));
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            answering.addAll(addresses); // a worker that was not probed counts as alive
        } catch (ExecutionException e) {
            throw new IllegalStateException("a probe failed", e);
        }
        return answering;
    }

    /// Whether a side channel answers at a `tcp://host:port` address.
    private static boolean answers(String address, Duration limit) {
        try (var socket = new Socket()) {
            var uri = URI.create(address);
            if (uri.getHost() == null || uri.getPort() < 1) {
                return false;
            }
            var connecting = Deadline.in(Duration.ofMillis(CONNECT_MILLIS));
            var host = HostNames.SYSTEM.addresses(uri.getHost(), connecting)[0];
            socket.connect(new InetSocketAddress(host, uri.getPort()), CONNECT_MILLIS);
            socket.setSoTimeout((int) limit.toMillis());
            socket.getOutputStream().write(SIGNATURE);
            // One read: a port that sends a byte now and then does not hold this up.
            var answer = new byte[SIGNATURE.length];
            int got = socket.getInputStream().read(answer);
            return got > 0
                    && answer[0] == SIGNATURE[0]
                    && (got < answer.length || answer[answer.length - 1] == 0x7F);
        } catch (IOException | IllegalArgumentException | KvFerryException e) {
            LOG.debug("no answer at {}: {}", address, e.toString());
            return false;
        }
    }
}
