// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.net.spi.InetAddressResolver;
import java.net.spi.InetAddressResolverProvider;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// The resolver of the system, which for hosts under [#SUFFIX] gets no answer for a minute. Every
/// test that has this jar on its class path resolves names with it.
public final class SilentNameServer extends InetAddressResolverProvider {
    /// End of the names that nobody answers for.
    public static final String SUFFIX = ".silent.test";

    private static final CountDownLatch NEVER = new CountDownLatch(1);

    @Override
    public String name() {
        return "silent for *" + SUFFIX;
    }

    @Override
    public InetAddressResolver get(Configuration configuration) {
        var system = configuration.builtinResolver();
        return new InetAddressResolver() {
            @Override
            public Stream<InetAddress> lookupByName(String host, LookupPolicy policy)
                    throws UnknownHostException {
                if (host.endsWith(SUFFIX)) {
                    awaitNothing();
                    throw new UnknownHostException(host);
                }
                return system.lookupByName(host, policy);
            }

            @Override
            public String lookupByAddress(byte[] address) throws UnknownHostException {
                return system.lookupByAddress(address);
            }
        };
    }

    private static void awaitNothing() {
        try {
            var _ = NEVER.await(60, TimeUnit.SECONDS);
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
