// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.http;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpRequestDecoder;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/// Plain Netty: parses each request and answers it with the same bytes.
final class EchoServer implements AutoCloseable {
    private static final int IO_THREADS = 2; // as many as the measured server has

    private final MultiThreadIoEventLoopGroup io =
            new MultiThreadIoEventLoopGroup(IO_THREADS, NioIoHandler.newFactory());
    private final Channel listener;

    /// @param response status line, head and body, as they go over the wire
    EchoServer(byte[] response) {
        listener =
                new ServerBootstrap()
                        .group(io)
                        .channel(NioServerSocketChannel.class)
                        .option(ChannelOption.SO_BACKLOG, 1024)
                        .childOption(ChannelOption.TCP_NODELAY, true)
                        .childHandler(
                                new ChannelInitializer<SocketChannel>() {
                                    @Override
                                    protected void initChannel(SocketChannel channel) {
                                        channel.pipeline()
                                                .addLast(
                                                        new HttpRequestDecoder(),
                                                        new HttpObjectAggregator(1 << 20),
                                                        new Answer(response));
                                    }
                                })
                        .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
                        .syncUninterruptibly()
                        .channel();
    }

    private static final class Answer extends SimpleChannelInboundHandler<FullHttpRequest> {
        private final byte[] response;

        Answer(byte[] response) {
            this.response = response;
        }

        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            context.writeAndFlush(Unpooled.wrappedBuffer(response));
        }
    }

    int port() {
        return ((InetSocketAddress) listener.localAddress()).getPort();
    }

    @Override
    public void close() {
        listener.close().awaitUninterruptibly(2, TimeUnit.SECONDS);
        io.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly(5, TimeUnit.SECONDS);
    }
}
