// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;

import javax.tools.ToolProvider;

/// Compiles plugin sources into jars, so that discovery is tested with what users install: files.
public final class PluginJar {
    private final Path jar;
    private final List<Path> sources = new ArrayList<>();
    private final List<String> services = new ArrayList<>();
    private final Path work;
    private String kind = Greeter.class.getName();
    private String classPath = System.getProperty("java.class.path");

    public PluginJar(Path work, Path jar) {
        this.work = work;
        this.jar = jar;
    }

    /// Adds a public class of the default package.
    public PluginJar source(String className, String text) {
        try {
            var file = Files.createDirectories(work.resolve("src")).resolve(className + ".java");
            Files.writeString(file, text);
            sources.add(file);
            return this;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// Adds a `Greeter` of that class name; `body` is more members.
    public PluginJar greeter(String className, String name, String body) {
        source(
                className,
                """
                public class %s implements io.kvferry.multiconnector.discovery.Greeter {
                    public String name() { return "%s"; }
                    public String greet() { return "hello from %s"; }
                    %s
                }
                """
                        .formatted(className, name, name, body));
        return service(className);
    }

    /// Compiles against nothing but what `type` came from.
    public PluginJar against(Class<?> type) {
        classPath = type.getProtectionDomain().getCodeSource().getLocation().getPath();
        return this;
    }

    /// Adds that class to the service file of another kind of plugin.
    public PluginJar provider(Class<?> service, String className) {
        kind = service.getName();
        return service(className);
    }

    /// Adds a line to the service file.
    public PluginJar service(String line) {
        services.add(line);
        return this;
    }

    /// Compiles and packs.
    public Path build() {
        try {
            var classes = Files.createDirectories(work.resolve("classes"));
            if (!sources.isEmpty()) {
                compile(classes);
            }
            Files.createDirectories(jar.getParent());
            try (var out = new JarOutputStream(Files.newOutputStream(jar));
                    var files = Files.list(classes)) {
                for (var file : files.sorted().toList()) {
                    put(out, file.getFileName().toString(), Files.readAllBytes(file));
                }
                put(
                        out,
                        "META-INF/services/" + kind,
                        String.join("\n", services).getBytes(StandardCharsets.UTF_8));
            }
            return jar;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void compile(Path classes) throws IOException {
        var compiler = ToolProvider.getSystemJavaCompiler();
        try (var files = compiler.getStandardFileManager(null, null, null)) {
            var units = files.getJavaFileObjectsFromPaths(sources);
            var options = List.of("-d", classes.toString(), "-classpath", classPath, "-proc:none");
            if (!compiler.getTask(null, files, null, options, null, units).call()) {
                throw new IllegalStateException("the plugin's sources do not compile: " + sources);
            }
        }
    }

    private static void put(JarOutputStream out, String name, byte[] bytes) throws IOException {
        out.putNextEntry(new JarEntry(name));
        out.write(bytes);
        out.closeEntry();
    }
}
