// SPDX-License-Identifier: Apache-2.0
#include "tests/support/subprocess.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace sparsed::testing {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe MakePipe() {
  std::array<int, 2> ends;
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

// Until the other end is closed; a terminal reports that as an error.
std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void WriteText(int fd, const std::string& text) {
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

}  // namespace

std::vector<std::string> InheritedEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

Subprocess::Subprocess(const std::vector<std::string>& command, const Options& options) {
  Pipe in;
  Pipe out;
  if (options.terminal) {
    winsize size = {};
    size.ws_col = options.terminal->columns;
    size.ws_row = options.terminal->rows;
    EXPECT_EQ(openpty(&out.read_end, &out.write_end, nullptr, nullptr, &size), 0);
    fcntl(out.read_end, F_SETFD, FD_CLOEXEC);
    in = {out.write_end, dup(out.read_end)};
    fcntl(in.write_end, F_SETFD, FD_CLOEXEC);
  } else {
    in = MakePipe();
    out = MakePipe();
  }
  const Pipe error = MakePipe();
  const std::vector<char*> arguments = Pointers(command);
  const std::vector<char*> environment = Pointers(options.environment);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(error.write_end, STDERR_FILENO);
    execve(arguments[0], arguments.data(), environment.data());
    _exit(127);
  }
  EXPECT_GT(pid_, 0);
  if (!options.terminal) close(in.read_end);
  close(out.write_end);
  close(error.write_end);
  input_fd_ = in.write_end;
  out_fd_ = out.read_end;
  error_fd_ = error.read_end;
  if (!options.terminal) {
    WriteText(input_fd_, options.input);
    close(input_fd_);
    input_fd_ = -1;
  }
  out_reader_ = std::thread([this] { finished_.out = ReadAll(out_fd_); });
  error_reader_ = std::thread([this] { finished_.error = ReadAll(error_fd_); });
}

Subprocess::~Subprocess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
}

void Subprocess::Signal(int signal) const { kill(pid_, signal); }

void Subprocess::Type(const std::string& text) const { WriteText(input_fd_, text); }

bool Subprocess::EndsWithin(std::chrono::milliseconds limit) const {
  return Eventually(
      [this] {
        siginfo_t info = {};
        const int options = WEXITED | WNOHANG | WNOWAIT;  // Wait collects it
        return waitid(P_PID, static_cast<id_t>(pid_), &info, options) == 0 && info.si_pid == pid_;
      },
      limit);
}

Finished Subprocess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  out_reader_.join();
  error_reader_.join();
  close(out_fd_);
  close(error_fd_);
  if (input_fd_ >= 0) close(input_fd_);
  finished_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return std::move(finished_);
}

}  // namespace sparsed::testing
