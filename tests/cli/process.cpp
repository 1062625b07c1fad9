// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace winnow::test {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close(read); }
  void close_write() { close(write); }
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

[[noreturn]] void become(const std::vector<std::string>& arguments, const RunSetup& setup, const Pipe& in,
                         const Pipe& out, const Pipe& err) {
  std::signal(SIGPIPE, SIG_DFL);
  ::dup2(in.read, STDIN_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  if (setup.close_stdout) {
    ::close(STDOUT_FILENO);
  } else {
    ::dup2(out.write, STDOUT_FILENO);
  }
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

// Reads both pipes until they end; sends the interrupt when its time has come.
void collect(pid_t child, const RunSetup& setup, Pipe& out, Pipe& err, Ran& ran) {
  bool out_open = !setup.broken_pipe && !setup.close_stdout, err_open = true, waiting = setup.interrupt_after_ms > 0;
  char buffer[65536];
  while (out_open || err_open) {
    pollfd ends[2] = {{out_open ? out.read : -1, POLLIN, 0}, {err_open ? err.read : -1, POLLIN, 0}};
    ::poll(ends, 2, -1);
    const auto take = [&](const pollfd& end, bool& open, std::string& text) {
      if (end.revents == 0) return;
      const ssize_t count = ::read(end.fd, buffer, sizeof(buffer));
      if (count <= 0) open = false;
      if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
    };
    take(ends[0], out_open, ran.out);
    take(ends[1], err_open, ran.err);
    if (waiting && !ran.out.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(setup.interrupt_after_ms));
      ::kill(child, SIGINT);
      waiting = false;
    }
  }
}

}  // namespace

Ran run(const std::vector<std::string>& arguments, const RunSetup& setup) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  const pid_t child = ::fork();
  if (child == 0) become(arguments, setup, in, out, err);
  in.close_read();
  out.close_write();
  err.close_write();
  if (setup.broken_pipe) out.close_read();
  // Inputs of tests are shorter than a pipe holds, so that one write cannot block.
  [[maybe_unused]] const ssize_t written = ::write(in.write, setup.input.data(), setup.input.size());
  in.close_write();
  Ran ran;
  collect(child, setup, out, err, ran);
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

}  // namespace winnow::test
