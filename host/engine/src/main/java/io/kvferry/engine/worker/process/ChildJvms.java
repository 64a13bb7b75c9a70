// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.worker.WorkerLauncher;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Starts each worker in a child JVM with this JVM's class path.
///
/// @param jvmOptions options for the children, such as `-Xmx2g`
public record ChildJvms(List<String> jvmOptions) implements WorkerLauncher {
    @Override
    public Link launch(int rank) throws IOException {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        // Standard output is the link: a JVM's own warnings, as of an AOT cache that does not fit,
        // would be taken for a frame.
        command.addAll(List.of("-Xlog:disable", "-Xlog:all=warning:stderr"));
        command.addAll(jvmOptions);
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.add(WorkerMain.class.getName());
        return new Child(new ProcessBuilder(command).redirectError(Redirect.INHERIT).start());
    }

    private record Child(Process process) implements Link {
        @Override
        public InputStream in() {
            return process.getInputStream();
        }

        @Override
        public OutputStream out() {
            return process.getOutputStream();
        }

        @Override
        public void kill() {
            process.destroyForcibly();
        }

        @Override
        public boolean awaitEnd(Duration limit) throws InterruptedException {
            return process.waitFor(limit.toNanos(), TimeUnit.NANOSECONDS);
        }

        @Override
        public String toString() {
            return "pid "
                    + process.pid()
                    + (process.isAlive() ? "" : ", exit code " + process.exitValue());
        }
    }
}
