// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.http;

import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.Promise;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

import java.net.InetAddress;
import java.nio.ByteBuffer;

/// Plain Jetty: reads each request and answers it with the same body, in chunks as the measured
/// server does.
final class JettyEcho implements AutoCloseable {
    private static final int THREADS = 200; // Jetty's default

    private final Server server = new Server(new QueuedThreadPool(THREADS));
    private final ServerConnector connector = new ServerConnector(server);

    /// @param body of each response
    JettyEcho(byte[] body) throws Exception {
        connector.setHost(InetAddress.getLoopbackAddress().getHostAddress());
        connector.setAcceptQueueSize(1024);
        server.addConnector(connector);
        server.setHandler(
                new Handler.Abstract() {
                    @Override
                    public boolean handle(Request request, Response response, Callback callback) {
                        Content.Source.asByteBuffer(
                                request,
                                Promise.from(_ -> answer(response, callback), callback::failed));
                        return true;
                    }

                    private void answer(Response response, Callback callback) {
                        response.getHeaders().put(HttpHeader.CONTENT_TYPE, "text/event-stream");
                        // Not the last write, so that the length is not known: chunks.
                        response.write(
                                false,
                                ByteBuffer.wrap(body),
                                Callback.from(
                                        () -> response.write(true, null, callback),
                                        callback::failed));
                    }
                });
        server.start();
    }

    int port() {
        return connector.getLocalPort();
    }

    @Override
    public void close() {
        try {
            server.stop();
        } catch (Exception e) {
            throw new IllegalStateException("Jetty does not stop", e);
        }
    }
}
